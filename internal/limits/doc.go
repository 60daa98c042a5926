// Package limits holds what everything in a sandbox uses together, by control
// groups: memory, processor time, processes. It also tells what was used, and
// which limit was met.
//
// There are two kinds of hierarchies, and machines that have both. In version 1
// each controller is a hierarchy of its own, and only root can make a group. In
// version 2 there is one, parts of which may belong to a user; a group whose
// children are limited cannot have processes itself, so that a group for a
// sandbox usually stands beside the caller's own. Where no part belongs to the
// caller, systemd is asked for one: the calling process moves into a scope of its
// own, below which it can make groups.
//
// What cannot be held is an error before anything runs. Nothing is approximated.
//
// A group is a directory. Its owner holds a lock on it for as long as it is in
// use, which the kernel takes back when the owner ends in whatever way. Who makes
// a group next to one without a lock removes that.
//
// Without a limit nothing of this package should be called: a sandbox that has
// none costs nothing here.
package limits
