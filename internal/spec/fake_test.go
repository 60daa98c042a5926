package spec

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// fakeFacts is a machine in memory.
type fakeFacts struct {
	host       Host
	files      map[string]*fakeFile
	unreadable map[string]bool
	mounts     []MountPoint
	closed     string // paths that start so cannot be looked at
}

type fakeFile struct {
	FileInfo
	text string // a file's content or a link's text
}

// newFake makes a machine from lines: "/dir/", "/file", "/file=content",
// "/link -> target". Directories above them come by themselves.
func newFake(lines ...string) *fakeFacts {
	f := &fakeFacts{
		host:       Host{UID: 1000, GID: 1000, Home: "/home/u", Dir: "/home/u/p"},
		files:      map[string]*fakeFile{},
		unreadable: map[string]bool{},
		mounts:     []MountPoint{{"8:1", "/", "/", "ext4"}},
	}
	f.put("/", &fakeFile{FileInfo: FileInfo{Type: TypeDirectory, Mode: 0o755}})
	for _, line := range lines {
		f.add(line)
	}
	return f
}

// newSystem is newFake with what every Linux system has.
func newSystem(lines ...string) *fakeFacts {
	return newFake(append([]string{
		"/bin -> usr/bin", "/sbin -> usr/sbin", "/lib -> usr/lib", "/lib64 -> usr/lib64",
		"/usr/bin/", "/usr/sbin/", "/usr/lib/", "/usr/lib64/", "/usr/local/bin/", "/opt/",
		"/etc/passwd", "/etc/shadow", "/etc/resolv.conf=nameserver 192.0.2.1", "/etc/ssl/private/",
		"/tmp/", "/var/tmp/", "/var/lib/", "/run/", "/proc/kcore", "/proc/keys", "/proc/acpi/", "/dev/null", "/dev/kvm",
		"/home/u/.ssh/id_ed25519",
	}, lines...)...)
}

// repository lists a git directory as git init leaves it.
func repository(dir string) []string {
	return []string{
		dir + "/HEAD=ref: refs/heads/main", dir + "/config=[core]\n\tbare = false\n", dir + "/hooks/pre-commit.sample",
		dir + "/objects/", dir + "/refs/", dir + "/info/exclude",
	}
}

func (f *fakeFacts) add(line string) {
	if name, target, ok := strings.Cut(line, " -> "); ok {
		f.put(name, &fakeFile{FileInfo: FileInfo{Type: TypeLink, Mode: 0o777}, text: target})
		return
	}
	name, content, _ := strings.Cut(line, "=")
	if dir, ok := strings.CutSuffix(name, "/"); ok {
		f.put(dir, &fakeFile{FileInfo: FileInfo{Type: TypeDirectory, Mode: 0o755}})
		return
	}
	f.put(name, &fakeFile{FileInfo: FileInfo{Type: TypeRegular, Mode: 0o644}, text: content})
}

func (f *fakeFacts) put(p string, file *fakeFile) {
	if _, ok := f.files[p]; ok && file.Type == TypeDirectory {
		return
	}
	file.Dev, file.Ino, file.Nlink = 1, uint64(len(f.files)+1), 1
	if Covers("/home", p) {
		file.UID, file.GID = 1000, 1000
	}
	f.files[p] = file
	if dir := path.Dir(p); dir != p {
		f.put(dir, &fakeFile{FileInfo: FileInfo{Type: TypeDirectory, Mode: 0o755}})
	}
}

func (f *fakeFacts) Host() Host { return f.host }

// Lstat follows links above the last component as a kernel would: that none is
// ever asked for is for the tests to see.
func (f *fakeFacts) Lstat(p string) (FileInfo, error) {
	if f.closed != "" && strings.HasPrefix(p, f.closed) {
		return FileInfo{}, fs.ErrPermission
	}
	if file, ok := f.files[p]; ok {
		return file.FileInfo, nil
	}
	return FileInfo{}, fs.ErrNotExist
}

func (f *fakeFacts) Readlink(p string) (string, error) {
	if file, ok := f.files[p]; ok && file.Type == TypeLink {
		return file.text, nil
	}
	return "", fs.ErrInvalid
}

func (f *fakeFacts) ReadDir(p string, limit int) ([]string, error) {
	if file, ok := f.files[p]; !ok || file.Type != TypeDirectory {
		return nil, fs.ErrNotExist
	}
	if f.unreadable[p] {
		return nil, fs.ErrPermission
	}
	var names []string
	for name := range f.files {
		if name != "/" && path.Dir(name) == p {
			names = append(names, path.Base(name))
		}
	}
	if len(names) > limit {
		return nil, fs.ErrInvalid
	}
	slices.Sort(names)
	return names, nil
}

func (f *fakeFacts) ReadFile(p string) ([]byte, error) {
	if file, ok := f.files[p]; ok && file.Type == TypeRegular {
		return []byte(file.text), nil
	}
	return nil, fs.ErrNotExist
}

func (f *fakeFacts) Readable(p string) bool { return !f.unreadable[p] }

func (f *fakeFacts) Mounts() ([]MountPoint, error) { return f.mounts, nil }
