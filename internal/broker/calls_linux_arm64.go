package broker

import "golang.org/x/sys/unix"

var oldCalls []call

var oldLooks = []look{
	{nr: unix.SYS_FSTATAT, op: "stat", dirfd: 0, name: 1, flags: -1},
}
