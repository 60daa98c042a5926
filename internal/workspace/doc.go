// Package workspace keeps codebases and what sandboxes make of them. A codebase is
// a stack of layers that never change; a workspace is a delta on top of one, or on
// top of a directory of the host. What is written to a workspace reaches neither.
//
// A snapshot turns the delta into one more layer, which is a rename, and a fork is
// another workspace on the same layers: neither depends on how many files there
// are. Every operation is all there or not at all, whenever its process is killed:
// it is prepared where Sweep of package delta finds it, and takes effect by one
// rename.
package workspace
