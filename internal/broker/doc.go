// Package broker decides, outside of a sandbox, what the kernel cannot decide
// by itself: which names may come into being, which files a pattern forbids,
// which sockets of the host may be reached.
//
// The sandbox's filter stops the calling thread before such a call and tells
// the broker its number and registers. The broker copies the path out of the
// caller's memory once, finds out on its own what it leads to, and judges that.
// Then it either performs the call itself, on the very directory that it judged,
// and gives the caller the result, or lets the kernel perform it. The kernel
// then reads the path again, which the caller may have changed, so that is done
// only where another wall stands: Landlock grants the command no right to make
// or write anything in the directories the rules are about (see Broker.Areas in
// package spec). When the broker dies, the calls fail.
//
// A broker works on the caller's file tree, through the root directory of the
// sandbox, with the caller's own user and without any capability. It is not in
// the sandbox's mount namespace, so the kernel does not keep it from renaming a
// directory that is a mount point in there: it does so itself.
package broker
