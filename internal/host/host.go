// Package host answers the questions spec.Compile has about this machine, from
// the live file system.
package host

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Facts implements spec.Facts. The caller fills what the machine itself cannot
// tell: which directories and files are Bailey's own.
type Facts struct {
	Caller spec.Host
}

var _ spec.Facts = (*Facts)(nil)

// New gathers what is known about the calling process. OwnDirs and PolicyFiles
// are left to fill in.
func New() (*Facts, error) {
	dir, err := workingDir()
	if err != nil {
		return nil, err
	}
	// Without an executable's path there is none to protect.
	self, _ := os.Executable()
	return &Facts{Caller: spec.Host{
		UID:     os.Geteuid(),
		GID:     os.Getegid(),
		Home:    homeDir(),
		Dir:     dir,
		Environ: os.Environ(),
		Self:    self,

		Companions: companions(self),
	}}, nil
}

// companions are the programs that are started without a sandbox: beside this
// one or, for programs that embed Bailey, where PATH has them.
func companions(self string) []string {
	if self == "" {
		return nil
	}
	var list []string
	for _, name := range []string{"bailey", "bailey-gate", "bailey-guard", "baileyd", "bailey-server"} {
		beside := filepath.Join(filepath.Dir(self), name)
		if beside == self {
			continue
		}
		list = append(list, beside)
		if _, err := os.Lstat(beside); err != nil {
			list = append(list, inPath(name)...)
		}
	}
	return list
}

func inPath(name string) []string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		file := filepath.Join(dir, name)
		if _, err := os.Lstat(file); err == nil && filepath.IsAbs(file) {
			return []string{file}
		}
	}
	return nil
}

// homeDir ignores a HOME that is not absolute: it would mean another directory
// for every working directory. Then the home is the one the system knows.
func homeDir() string {
	if home := os.Getenv("HOME"); strings.HasPrefix(home, "/") {
		return home
	}
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	return homeIn(string(data), os.Geteuid())
}

// homeIn finds a user's home in the format of /etc/passwd:
//
//	name:password:uid:gid:comment:home:shell
func homeIn(passwd string, uid int) string {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) >= 6 && f[2] == strconv.Itoa(uid) && strings.HasPrefix(f[5], "/") {
			return f[5]
		}
	}
	return ""
}

// Host returns Caller.
func (f *Facts) Host() spec.Host { return f.Caller }

// Readlink returns a link's text.
func (f *Facts) Readlink(path string) (string, error) { return os.Readlink(path) }

var errTooMany = errors.New("too many entries")

// maxFile is far more than the files asked for hold: git's pointers and
// configuration.
const maxFile = 1 << 20

var errTooLarge = errors.New("too large to be a configuration file")

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errTooLarge
	}
	return data, err
}

// ParseMounts reads a mount table in the format of /proc/self/mountinfo:
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw
//
// that is: mount and parent id, device, the directory of that file system that
// is mounted, where, and what is of no interest here. Blanks and backslashes in
// paths are written as three octal digits.
func ParseMounts(r io.Reader) ([]spec.MountPoint, error) {
	// The table is as long as the host has mounts, so it has no limit.
	var text bytes.Buffer
	text.Grow(4 << 10)
	if _, err := text.ReadFrom(r); err != nil {
		return nil, err
	}
	table := make([]spec.MountPoint, 0, 32)
	for line := range strings.Lines(text.String()) {
		var fields [5]string
		rest := line
		for i := range fields {
			var ok bool
			if fields[i], rest, ok = strings.Cut(rest, " "); !ok {
				return nil, errors.New("mount table: short line " + strconv.Quote(line))
			}
		}
		// After the optional fields, of which there may be any number, and a
		// hyphen comes the type.
		var kind string
		if _, after, ok := strings.Cut(" "+rest, " - "); ok {
			kind, _, _ = strings.Cut(after, " ")
		}
		table = append(table, spec.MountPoint{Dev: fields[2], Root: spec.UnescapeMount(fields[3]), Target: spec.UnescapeMount(fields[4]), Type: kind})
	}
	return table, nil
}
