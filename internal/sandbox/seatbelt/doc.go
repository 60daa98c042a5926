// Package seatbelt carries Specs out with Seatbelt, the sandbox of macOS, through
// sandbox-exec.
//
// A profile is made from a Spec in the order of its mounts. In a profile the last
// rule that matches decides, and in a Spec the innermost mount, which stands after
// those around it: so each mount says anew what holds at its place and below, and
// what the broker would decide on Linux is denied after all of them. After the
// mounts nothing is allowed any more but the metadata of the directories above
// them and the scratch directory.
//
// The text of a profile is made of fixed words. Paths, and the regular expressions
// that patterns become, are parameters beside it, so that no name can end a string
// and begin a rule.
//
// Seatbelt knows files by path, and has neither mounts nor namespaces. What it
// cannot hold is refused by Refuses, by its key, before anything runs.
package seatbelt
