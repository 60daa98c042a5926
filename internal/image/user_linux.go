package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// HasUser says whether commands are to be another user than the one that owns everything.
func (c *Config) HasUser() bool {
	first, _, _ := strings.Cut(c.User, ":")
	return first != "" && first != "root" && first != "0"
}

// UserIn finds a user of another system, and the group: by their numbers, or by their names
// in its own files.
func UserIn(root, text string) (uid, gid int, err error) {
	name, group, grouped := strings.Cut(text, ":")
	users, err := entriesOf(root, "etc/passwd")
	if err != nil {
		return 0, 0, err
	}
	if uid, err = numberOf(name, users); err != nil {
		return 0, 0, fmt.Errorf("%w; name it by its number", err)
	}
	if !grouped {
		return uid, groupOf(uid, users), nil
	}
	groups, err := entriesOf(root, "etc/group")
	if err != nil {
		return 0, 0, err
	}
	if gid, err = numberOf(group, groups); err != nil {
		return 0, 0, fmt.Errorf("group %w; name it by its number", err)
	}
	return uid, gid, nil
}

// numberOf is a number as it stands, or that of a name: the third field of its line.
//
//	app:x:1000:1000::/home/app:/bin/sh
func numberOf(text string, entries [][]string) (int, error) {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return int(n), nil
	}
	for _, f := range entries {
		if n, err := strconv.ParseUint(f[2], 10, 31); f[0] == text && err == nil {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("%s is not known there", plain.Text(text))
}

// groupOf is the group of a user. One that is not in the file has that of its own number.
func groupOf(uid int, users [][]string) int {
	for _, f := range users {
		n, err := strconv.ParseUint(f[2], 10, 31)
		if err != nil || int(n) != uid || len(f) < 4 {
			continue
		}
		if gid, err := strconv.ParseUint(f[3], 10, 31); err == nil {
			return int(gid)
		}
	}
	return uid
}

// entriesOf are the lines of a file of another system, of which there may be none. Strangers
// have made it: links lead nowhere else, and what is no file is not read.
func entriesOf(root, name string) (entries [][]string, err error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY, Resolve: unix.RESOLVE_IN_ROOT})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open its %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("its " + name + " is no file")
	}
	const most = 1 << 20
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(fields) >= 3 {
			entries = append(entries, fields)
		}
	}
	return entries, nil
}
