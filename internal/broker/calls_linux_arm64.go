package broker

import "golang.org/x/sys/unix"

var oldCalls []call

var oldLooks = []look{
	{nr: unix.SYS_FSTATAT, op: "stat", dirfd: 0, name: 1, flags: -1},
}

func oldModeOf(*notification) (uint32, bool) { return 0, false }

func oldOwnerOf(*notification) (uid, gid int, ok bool) { return 0, 0, false }
