package testenv

import (
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Btrfs is met where a file system of that kind, whose files can share blocks, can be
// made in a file. Root mounts it.
var Btrfs = Requirement{"btrfs in a file", func() bool {
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || !slices.Contains(strings.Fields(string(known)), "btrfs") {
		return false
	}
	for _, name := range []string{"mkfs.btrfs", "mount", "filefrag"} {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	_, err = os.Stat("/dev/loop-control")
	return err == nil
}}
