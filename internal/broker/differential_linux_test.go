package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// A call that the broker performs must end as it would have without it: with the
// same error, and the same files. Every call below is made twice, by a process
// without capabilities in a directory of its own, and by one in a sandbox.

// operation is a call with a name in it that can be odd.
type operation struct {
	name string
	call func(name string) (detail string, err error)
}

func noDetail(f func(string) error) func(string) (string, error) {
	return func(name string) (string, error) { return "", f(name) }
}

func opening(flags int) func(string) (string, error) {
	return func(name string) (string, error) {
		// Named pipes have no other end here.
		fd, err := unix.Open(name, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		return describeOpen(fd, flags)
	}
}

// describeOpen tells what a descriptor is, and what can be done with it. That a
// link was not to be followed does not matter any more.
func describeOpen(fd, asked int) (string, error) {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	at, _, _ = strings.Cut(at, "#") // a file without a name has its number there
	dir, _ := os.Getwd()
	flags &^= unix.O_NOFOLLOW & asked
	return fmt.Sprintf("flags %#o mode %o at %s", flags, st.Mode, strings.TrimPrefix(at, filepath.Dir(dir))), err
}

func renaming(flags uint, names func(name string) (from, to string)) func(string) (string, error) {
	return noDetail(func(name string) error {
		from, to := names(name)
		return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	})
}

func from(name string) (string, string) { return name, "new" }

func to(name string) func(string) (string, string) {
	return func(other string) (string, string) { return name, other }
}

func linking(flags int, names func(name string) (from, to string)) func(string) (string, error) {
	return noDetail(func(name string) error {
		from, to := names(name)
		return unix.Linkat(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	})
}

func onSocket(call int, kind int) func(string) (string, error) {
	return noDetail(func(name string) error {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// Not by the package, which takes an "@" and an empty name for something
		// else.
		a := append([]byte{unix.AF_UNIX, 0}, name...)
		if len(a) > 100 {
			return unix.EINVAL // the address has no room for it
		}
		if name != "" {
			a = append(a, 0)
		}
		if call == unix.SYS_SENDTO {
			_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&[]byte("x")[0])), 1, 0,
				uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)))
			return errnoError(errno)
		}
		_, _, errno := unix.Syscall(uintptr(call), uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)))
		return errnoError(errno)
	})
}

// at makes a call that starts from a descriptor of a file or a directory.
func at(file string, call func(fd int, name string) error) func(string) (string, error) {
	return noDetail(func(name string) error {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return call(fd, name)
	})
}

// naming gives a name to a file that has none.
func naming(give func(fd int, name string) error) func(string) (string, error) {
	return noDetail(func(name string) error {
		fd, err := unix.Open("d", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o666)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return give(fd, name)
	})
}

func makeAt(fd int, name string) error { return unix.Mkdirat(fd, name, 0o777) }

func createAt(fd int, name string) error {
	made, err := unix.Openat(fd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o666)
	if err == nil {
		err = unix.Close(made)
	}
	return err
}

func errnoError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

var operations = []operation{
	{"mkdir", noDetail(func(n string) error { return unix.Mkdir(n, 0o777) })},
	{"mknod file", noDetail(func(n string) error { return unix.Mknod(n, unix.S_IFREG|0o666, 0) })},
	{"mknod without a type", noDetail(func(n string) error { return unix.Mknod(n, 0o666, 0) })},
	{"mknod pipe", noDetail(func(n string) error { return unix.Mknod(n, unix.S_IFIFO|0o666, 0) })},
	{"mknod directory", noDetail(func(n string) error { return unix.Mknod(n, unix.S_IFDIR|0o666, 0) })},
	{"mknod link", noDetail(func(n string) error { return unix.Mknod(n, unix.S_IFLNK|0o666, 0) })},
	{"mknod of no type", noDetail(func(n string) error { return unix.Mknod(n, 0o050000|0o666, 0) })},
	{"symlink", noDetail(func(n string) error { return unix.Symlink("f", n) })},
	{"symlink of nothing", noDetail(func(n string) error { return unix.Symlink("", n) })},
	{"open to create", opening(unix.O_WRONLY | unix.O_CREAT)},
	{"open to create, exclusively", opening(unix.O_RDWR | unix.O_CREAT | unix.O_EXCL)},
	{"open to create, not through a link", opening(unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW)},
	{"open to create a directory", opening(unix.O_RDWR | unix.O_CREAT | unix.O_DIRECTORY)},
	{"open to create a directory and read", opening(unix.O_CREAT | unix.O_DIRECTORY)},
	{"open to create and read", opening(unix.O_CREAT)},
	{"open to create and truncate", opening(unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC)},
	{"open to write", opening(unix.O_WRONLY)},
	{"open to write, not through a link", opening(unix.O_WRONLY | unix.O_NOFOLLOW)},
	{"open to write a directory", opening(unix.O_RDWR | unix.O_DIRECTORY)},
	{"open to append", opening(unix.O_WRONLY | unix.O_APPEND)},
	{"open in both access modes", opening(unix.O_ACCMODE)},
	{"open without a name", opening(unix.O_RDWR | unix.O_TMPFILE)},
	{"open without a name to read", opening(unix.O_TMPFILE)},
	{"open without a name, exclusively", opening(unix.O_WRONLY | unix.O_TMPFILE | unix.O_EXCL)},
	{"open without a name, creating", opening(unix.O_WRONLY | unix.O_TMPFILE | unix.O_CREAT)},
	{"open to read", opening(unix.O_RDONLY)},
	{"open to read, not through a link", opening(unix.O_NOFOLLOW)},
	{"open to read a directory", opening(unix.O_DIRECTORY)},
	{"unlink", noDetail(unix.Unlink)},
	{"rmdir", noDetail(unix.Rmdir)},
	{"unlinkat with an unknown flag", noDetail(func(n string) error { return unix.Unlinkat(unix.AT_FDCWD, n, 1) })},
	{"truncate", noDetail(func(n string) error { return unix.Truncate(n, 3) })},
	{"truncate to less than nothing", noDetail(func(n string) error { return unix.Truncate(n, -1) })},
	{"link to", linking(0, to("f"))},
	{"link a directory to", linking(0, to("d"))},
	{"link from", linking(0, from)},
	{"link from, through links", linking(unix.AT_SYMLINK_FOLLOW, from)},
	{"link from, empty path", linking(unix.AT_EMPTY_PATH, from)},
	{"link with an unknown flag", linking(unix.AT_REMOVEDIR, from)},
	{"rename a file to", renaming(0, to("f"))},
	{"rename a directory to", renaming(0, to("d"))},
	{"rename an empty directory to", renaming(0, to("e"))},
	{"rename a link to", renaming(0, to("ld"))},
	{"rename from", renaming(0, from)},
	{"rename onto itself", renaming(0, func(n string) (string, string) { return n, n })},
	{"rename to below itself", renaming(0, func(n string) (string, string) { return n, n + "/new" })},
	{"rename from into nothing", renaming(0, func(n string) (string, string) { return n, "missing/new" })},
	{"rename from to another file system", renaming(0, func(n string) (string, string) { return n, "/proc/new" })},
	{"rename from to a new directory", renaming(0, func(n string) (string, string) { return n, "new/" })},
	{"rename to, if nothing is there", renaming(unix.RENAME_NOREPLACE, to("f"))},
	{"rename a directory to, if nothing is there", renaming(unix.RENAME_NOREPLACE, to("d"))},
	{"rename from, if nothing is there", renaming(unix.RENAME_NOREPLACE, from)},
	{"exchange", renaming(unix.RENAME_EXCHANGE, to("f"))},
	{"exchange a directory", renaming(unix.RENAME_EXCHANGE, to("d"))},
	{"exchange from", renaming(unix.RENAME_EXCHANGE, from)},
	{"exchange, if nothing is there", renaming(unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE, to("f"))},
	{"rename with an unknown flag", renaming(1<<10, to("f"))},
	{"mkdir in a descriptor", at("ld", makeAt)},
	{"mkdir in a descriptor of a file", at("f", makeAt)},
	{"mkdir in no descriptor", noDetail(func(n string) error { return makeAt(99, n) })},
	{"open in a descriptor", at("d", createAt)},
	{"open in a descriptor of a file", at("f", createAt)},
	{"open in no descriptor", noDetail(func(n string) error { return createAt(99, n) })},
	{"unlink in a descriptor", at("d", func(fd int, n string) error { return unix.Unlinkat(fd, n, 0) })},
	{"unlink in no descriptor", noDetail(func(n string) error { return unix.Unlinkat(99, n, 0) })},
	{"rename in descriptors", at("d", func(fd int, n string) error { return unix.Renameat(fd, "x", fd, n) })},
	{"rename in no descriptor", noDetail(func(n string) error { return unix.Renameat(99, n, unix.AT_FDCWD, "new") })},
	{"rename to no descriptor", noDetail(func(n string) error { return unix.Renameat(unix.AT_FDCWD, "f", 99, n) })},
	{"link a descriptor", at("f", func(fd int, n string) error { return unix.Linkat(fd, "", unix.AT_FDCWD, n, unix.AT_EMPTY_PATH) })},
	{"link a descriptor of a directory", at("d", func(fd int, n string) error { return unix.Linkat(fd, "", unix.AT_FDCWD, n, unix.AT_EMPTY_PATH) })},
	{"link in no descriptor", noDetail(func(n string) error { return unix.Linkat(99, n, unix.AT_FDCWD, "new", unix.AT_EMPTY_PATH) })},
	{"link a file without a name", naming(func(fd int, n string) error { return unix.Linkat(fd, "", unix.AT_FDCWD, n, unix.AT_EMPTY_PATH) })},
	{"link a file without a name by its number", naming(func(fd int, n string) error {
		return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.AT_FDCWD, n, unix.AT_SYMLINK_FOLLOW)
	})},
	{"link a removed file", at("f", func(fd int, n string) error {
		if err := unix.Unlink("f"); err != nil {
			return err
		}
		return unix.Linkat(fd, "", unix.AT_FDCWD, n, unix.AT_EMPTY_PATH)
	})},
	{"bind", onSocket(unix.SYS_BIND, unix.SOCK_STREAM)},
	{"connect", onSocket(unix.SYS_CONNECT, unix.SOCK_STREAM)},
	{"connect in packets", onSocket(unix.SYS_CONNECT, unix.SOCK_SEQPACKET)},
}

// names are tried with every operation, in a directory as fill makes it.
func names() []string {
	return []string{
		"f", "f/", "f/.", "f/..", "f/x", "./f", ".//f",
		"d", "d/", "d/.", "d/..", "d//x", "d/x", "d/new", "d/../new", "d/../f",
		"e", "e/", "e/.", "e/new/",
		"l", "l/", "l/x", "l2", "ld", "ld/", "ld/.", "ld/x", "ld/new", "ld/../new",
		"dangling", "dangling/", "dangling/x", "loop", "loop/", "loop/x", "away", "away/",
		"p", "p/", "s", "s/", "r/new", "r/x", "r/", "closed/x", "closed/..",
		"missing", "missing/", "missing/x", "missing/.", "missing/..",
		".", "..", "./", "../", "/", "//", "/.", "/..", "../../../../../../../../../../..", "",
		"/proc/self/cwd/new", "/proc/self/cwd/f", "/proc/self/cwd/d/..", "/dev/fd/99/x", "/proc/thread-self/cwd/l",
		"@", "a b", "\xff\n", " (deleted)", "f (deleted)",
		strings.Repeat("n", unix.NAME_MAX), strings.Repeat("n", unix.NAME_MAX+1), strings.Repeat("n", unix.NAME_MAX+1) + "/x",
		strings.Repeat("./", unix.PathMax/2-1) + "f", strings.Repeat("./", unix.PathMax/2) + "f", "d" + strings.Repeat("/", 100) + "x",
	}
}

// fill makes the files that calls are about.
func fill(dir string) error {
	in := func(name string) string { return filepath.Join(dir, name) }
	var failed []error
	for _, name := range []string{"", "d", "e", "r", "closed"} {
		failed = append(failed, os.Mkdir(in(name), 0o777))
	}
	for _, name := range []string{"f", "d/x", "r/x", "closed/x"} {
		failed = append(failed, os.WriteFile(in(name), []byte("content of "+name), 0o666))
	}
	for name, text := range map[string]string{
		"l": "f", "l2": "l", "ld": "d", "dangling": "nothing", "loop": "loop", "away": "/nothing/at/all",
	} {
		failed = append(failed, os.Symlink(text, in(name)))
	}
	return errors.Join(append(failed, unix.Mkfifo(in("p"), 0o666), unix.Mknod(in("s"), unix.S_IFSOCK|0o666, 0),
		os.Chmod(in("r"), 0o555), os.Chmod(in("closed"), 0o600))...)
}

// shape describes all files below a directory.
func shape(t *testing.T, dir string) string {
	t.Helper()
	_ = os.Chmod(filepath.Join(dir, "closed"), 0o700)
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		case unix.S_IFLNK:
			text, err = os.Readlink(path)
		}
		fmt.Fprintf(&b, "%q %o %d %d %.60q\n", strings.TrimPrefix(path, dir), st.Mode, st.Nlink, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// attempt is one operation with one name.
type attempt struct {
	operation
	odd string
}

func attempts() []attempt {
	var all []attempt
	for _, o := range operations {
		for _, n := range names() {
			all = append(all, attempt{o, n})
		}
	}
	return all
}

func (a *attempt) String() string { return fmt.Sprintf("%s %.40q", a.name, a.odd) }

func outcome(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return err.Error()
	}
	return done
}

const (
	done = "done"
	// Words for the copy of this program that makes the calls: in directories
	// that are there, or in ones that it makes.
	callsWord, fillWord = "make-odd-calls", "fill-and-make-odd-calls"
)

func init() {
	if len(os.Args) < 2 || os.Args[1] != callsWord && os.Args[1] != fillWord {
		return
	}
	if err := makeCalls(os.Args[1] == fillWord); err != nil {
		fmt.Println(err)
		unix.Exit(1)
	}
	unix.Exit(0)
}

// makeCalls makes every call, those in a row that fail without a broker in one
// directory, and writes a line for each: the number of its directory and how it
// ended. The file "order" has the numbers, if the directories are there.
func makeCalls(fills bool) error {
	if err := dropCapabilities(); err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	order, _ := os.ReadFile("order")
	dirs := strings.Fields(string(order))
	next := 0
	for i, a := range attempts() {
		if fills {
			dirs = append(dirs, strconv.Itoa(next))
		}
		dir := filepath.Join(root, dirs[i])
		if _, err := os.Lstat(dir); fills && err != nil {
			unix.Umask(0o22)
			if err := fill(dir); err != nil {
				return err
			}
		}
		if err := unix.Chdir(dir); err != nil {
			return err
		}
		unix.Umask(0o27)
		detail, err := a.call(a.odd)
		if err == nil {
			next++
		}
		fmt.Printf("%s %q\n", dirs[i], strings.TrimSpace(outcome(err)+" "+detail))
	}
	return nil
}

func TestCallsEndAsWithoutABroker(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	old := unix.Umask(0o22)
	defer unix.Umask(old)
	native := newTrial(t, filepath.Join(base, "native"))
	c := exec.Command(native.program, fillWord)
	c.Dir = native.dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	native.read(t, out)
	for name, policy := range map[string]string{
		"names":    `{}`,
		"patterns": `{"filesystem": {"denyWrite": ["**/*.never"]}}`,
		"reading":  `{"filesystem": {"denyRead": ["**/*.never"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			trial := newTrial(t, filepath.Join(base, name))
			trial.runInSandbox(t, policy, native.order)
			trial.compare(t, native)
		})
	}
}

// trial is every call, made once.
type trial struct {
	dir, program string
	order        []string // the directory of each
	ends         []string // how each ended
}

func newTrial(t *testing.T, dir string) *trial {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { open(dir) })
	r := &trial{dir: dir, program: filepath.Join(dir, "program")}
	copySelf(t, r.program)
	return r
}

func (r *trial) runInSandbox(t *testing.T, policy string, order []string) {
	t.Helper()
	for _, name := range slices.Compact(slices.Clone(order)) {
		if err := fill(filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "order"), []byte(strings.Join(order, " ")), 0o644); err != nil {
		t.Fatal(err)
	}
	m := bailey.New(bailey.Config{Dir: r.dir, Policy: policy})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	c := m.Command(r.program, callsWord)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	r.read(t, out.Bytes())
}

func (r *trial) read(t *testing.T, out []byte) {
	t.Helper()
	for line := range strings.Lines(string(out)) {
		dir, quoted, _ := strings.Cut(strings.TrimSpace(line), " ")
		text, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		r.order, r.ends = append(r.order, dir), append(r.ends, text)
	}
	if len(r.ends) != len(attempts()) {
		t.Fatalf("%d calls ended of %d", len(r.ends), len(attempts()))
	}
}

func (r *trial) compare(t *testing.T, native *trial) {
	t.Helper()
	begin := map[string]int{} // the first call in a directory
	for i, a := range attempts() {
		if _, ok := begin[r.order[i]]; !ok {
			begin[r.order[i]] = i
		}
		want := native.ends[i]
		if r.ends[i] != want && !mayDiffer(&a, want, r.ends[i]) {
			t.Errorf("%s: got %s, want %s", &a, r.ends[i], want)
		}
	}
	for dir, i := range begin {
		got, want := shape(t, filepath.Join(r.dir, dir)), shape(t, filepath.Join(native.dir, dir))
		if got != want {
			t.Errorf("after %s and what follows it, got\n%swant\n%s", &attempts()[i], got, want)
		}
	}
}

// mayDiffer says whether a call may end in a sandbox in another way than without.
func mayDiffer(a *attempt, native, inside string) bool {
	switch {
	case a.odd == "s" && strings.HasPrefix(a.name, "connect"):
		return inside == "EACCES" // it is the host's, and need not be told from one that listens
	case strings.HasPrefix(a.name, "link a ") && native != done:
		return inside == "ENOENT" // it fails in any case; who opened the file is looked at first
	case leadsToRoot(a.odd):
		// The sandbox has a root of its own: another file system, which nobody can
		// write.
		return inside == "EXDEV" || inside == "EROFS" || inside == "ECONNREFUSED"
	}
	return false
}

func leadsToRoot(name string) bool {
	return strings.Trim(name, "./") == "" && (strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../.."))
}

// open lets what is in a directory be removed.
func open(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o755)
		}
		return nil
	})
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.Lock() // no child that is just being forked may have it open
	defer syscall.ForkLock.Unlock()
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
