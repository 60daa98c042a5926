// Package oci carries Specs out by OCI runtimes: runc, crun, and gVisor's runsc.
//
// A Spec becomes a bundle (see Config): a configuration in which every wall is
// stated, whatever the runtime's own defaults are, and a root directory that holds
// nothing but what the Spec shows. Check looks for each wall once more, from the
// other side; a bundle that lacks one is never written.
//
// Everything a runtime needs lives in a guard: a process in a process namespace and
// a mount namespace of its own. There it mounts a directory in memory with the
// bundle and the runtime's state, opens what the Spec grants without following
// links, and starts the runtime. It is process 1 of that namespace, so it reaps
// whatever the runtime leaves, and when it ends, or whoever started it, in whatever
// way, the kernel ends everything below it and takes the mounts down: nothing has
// to be deleted by the runtime, and nothing is on disk.
//
// Inside, the first process is this program once more, without any privilege: it
// passes signals on, reaps orphans, and tells over a socket how the command stopped or
// ended, exactly. Where the host's kernel is the command's, it also has the command put up
// Landlock and the filter that asks the broker around itself; see HasWalls.
package oci
