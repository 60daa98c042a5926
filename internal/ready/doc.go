// Package ready waits for a descriptor without a thread: the Go runtime waits for
// all of them at once. It is for who keeps many that are idle most of the time.
package ready
