// Package synced tells from a trace of system calls whether a process had files on
// the disk before it gave them their names. After a crash of the machine a name may
// otherwise lead to a file that is empty, which no test that kills a process can
// show: the kernel goes on and writes all of it. Tests use this package, and nothing
// else does.
package synced
