// Package native builds a sandbox with system calls alone: namespaces, a root
// directory made of exactly the Spec's mounts, Landlock and seccomp. It starts
// no helper program.
//
// A launch has three parts, each in a file of its own.
//
//   - launch_linux.go turns a Spec into a plan: a flat list of system calls, in
//     the order they happen, each with its reason. This is the file to audit.
//   - child_linux_*.s clones the process and performs the plan in the child.
//     The child shares the launcher's memory but runs no Go code, so it needs
//     no second start of a Go program and costs the same in a process with a
//     large heap.
//   - init_linux_*.s is what the plan's last call executes as process 1 of the
//     sandbox: a few hundred bytes that start the command, reap, pass signals
//     on and report.
package native
