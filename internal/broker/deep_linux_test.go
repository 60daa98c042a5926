package broker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// A directory can lie so deep that its path is longer than the kernel takes or
// tells. What is in there cannot be judged by its path.

// Its levels, and below the first three of them together a link that leads on:
// from the top the links lead to the bottom by a short path.
const (
	levels    = 30
	levelName = 200
)

var level = strings.Repeat("d", levelName)

// deepen makes the directories and leaves this process in the deepest.
func deepen() error {
	for i := range levels {
		if err := os.Mkdir(level, 0o755); err != nil {
			return err
		}
		if i%10 == 0 {
			if err := os.Symlink(strings.Repeat(level+"/", 10), "on"); err != nil {
				return err
			}
		}
		if err := unix.Chdir(level); err != nil {
			return err
		}
	}
	return nil
}

// descend goes to the deepest.
func descend() error {
	for range levels {
		if err := unix.Chdir(level); err != nil {
			return err
		}
	}
	return nil
}

const bottom = "on/on/on/"

// deepWays are what must not be done to the files in the deepest directory. Names
// are relative to it.
var deepWays = []struct {
	name string
	way  func(in string) error
}{
	{"truncate", func(in string) error { return unix.Truncate(in+"x.locked", 0) }},
	{"open to write", func(in string) error { return openAndClose(in+"x.locked", unix.O_WRONLY|unix.O_TRUNC) }},
	{"create", func(in string) error { return openAndClose(in+"new.locked", unix.O_WRONLY|unix.O_CREAT) }},
	{"open without a name", func(in string) error {
		fd, err := unix.Open(in+".", unix.O_TMPFILE|unix.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		return unix.Linkat(fd, "", unix.AT_FDCWD, in+"new.locked", unix.AT_EMPTY_PATH)
	}},
	{"mkdir", func(in string) error { return unix.Mkdir(in+"new.locked", 0o777) }},
	{"mknod", func(in string) error { return unix.Mknod(in+"new.locked", unix.S_IFREG|0o666, 0) }},
	{"symlink", func(in string) error { return unix.Symlink("x", in+"new.locked") }},
	{"link", func(in string) error { return unix.Link(in+"x.locked", in+"y") }},
	{"rename", func(in string) error { return unix.Rename(in+"x.locked", in+"y") }},
	{"rename to", func(in string) error { return unix.Rename(in+"x", in+"new.locked") }},
	{"unlink", func(in string) error { return unix.Unlink(in + "x.locked") }},
	{"chmod", func(in string) error { return unix.Chmod(in+"x.locked", 0o777) }},
	{"bind", func(in string) error { return second(onSocket(unix.SYS_BIND, unix.SOCK_STREAM)(in + "new.locked")) }},
	{"read", func(in string) error {
		data, err := os.ReadFile(in + "x.key")
		fmt.Printf("%s", data)
		return err
	}},
	{"read by a descriptor of the directory", func(in string) error {
		dir, err := unix.Open(in+".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		fd, err := unix.Openat(dir, "x.key", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		data := make([]byte, 100)
		n, err := unix.Read(fd, data)
		fmt.Printf("%s", data[:max(n, 0)])
		return err
	}},
	{"read by /proc", func(in string) error {
		data, err := os.ReadFile("/proc/self/cwd/" + in + "x.key")
		fmt.Printf("%s", data)
		return err
	}},
}

func openAndClose(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o666)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

const deepWord = "work-deep"

func init() {
	if len(os.Args) != 4 || os.Args[1] != deepWord {
		return
	}
	for _, w := range deepWays {
		if w.name != os.Args[2] {
			continue
		}
		if os.Args[3] == "" {
			if err := descend(); err != nil {
				fmt.Println(err)
				unix.Exit(0)
			}
		}
		if err := w.way(os.Args[3]); err != nil {
			fmt.Println(err)
		}
	}
	unix.Exit(0)
}

func TestWhatLiesTooDeepToJudgeIsRefused(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(3))
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", base)
	trial := newTrial(t, filepath.Join(base, "p"))
	t.Chdir(trial.dir)
	if err := deepen(); err != nil {
		t.Fatal(err)
	}
	const secret = "the secret"
	for name, text := range map[string]string{"x.locked": "locked", "x.key": "#!/bin/echo " + secret + "\n", "x": "x"} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deepest, err := os.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer deepest.Close()
	if err := os.Chdir(trial.dir); err != nil {
		t.Fatal(err)
	}
	files := fmt.Sprintf("/proc/self/fd/%d/.", deepest.Fd())
	before := shape(t, files)
	m := bailey.New(bailey.Config{Dir: trial.dir, Policy: `{"filesystem": {"denyRead": ["**/*.key"], "denyWrite": ["**/*.locked"]}}`})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	defer m.Cleanup()
	for _, w := range deepWays {
		for _, in := range []string{"", bottom} {
			t.Run(w.name+" "+strconv.Quote(in), func(t *testing.T) {
				out, err := m.Command(trial.program, deepWord, w.name, in).CombinedOutput()
				if err != nil || len(out) == 0 || strings.Contains(string(out), secret) {
					t.Errorf("got %q (%v), want an error", out, err)
				}
				if after := shape(t, files); after != before {
					t.Errorf("got\n%swant\n%s", after, before)
				}
			})
		}
	}
}
