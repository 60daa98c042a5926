// Package launch starts the network gate, which is a program of its own, when the
// first connection wants it: a command that opens none never pays for it.
package launch
