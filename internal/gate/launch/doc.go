// Package launch starts the network gate, which is a program of its own, when the
// first connection wants it: a command that opens none never pays for it. One that
// ends before its sandbox is told of, and replaced when the next connection comes.
package launch
