// Command workspacebench does one thing with files in the working directory, and
// prints how many seconds that took. scripts/bench/workspace-bench.sh runs it
// outside of any sandbox, inside of one, and in an overlay: starting those is no
// part of the time.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// workload is something to be timed. What is warmed does it once before; what is
// prepared is not part of the time.
type workload struct {
	warm    bool
	prepare func() error
	run     func() error
}

var workloads = map[string]workload{
	"read-small":       {warm: true, run: func() error { return eachFile(readFile) }},
	"read-small-first": {run: func() error { return eachFile(readFile) }},
	"read-large":       {warm: true, run: func() error { return readFile("large") }},
	"write-small":      {prepare: makeOut, run: func() error { return writeMany(2000, 1<<10) }},
	"write-large":      {prepare: makeOut, run: func() error { return writeLarge("out/large", 64<<20) }},
	"rewrite-small":    {run: func() error { return eachOf(500, rewrite) }},
	"stat":             {warm: true, run: func() error { return eachFile(stat) }},
	"stat-first":       {run: func() error { return eachFile(stat) }},
	"readdir":          {warm: true, run: func() error { return filepath.WalkDir("tree", func(string, fs.DirEntry, error) error { return nil }) }},
	"create":           {prepare: makeOut, run: func() error { return writeMany(5000, 0) }},
	"delete":           {prepare: func() error { return errors.Join(makeOut(), writeMany(5000, 0)) }, run: func() error { return removeMany(5000) }},
	"rename":           {prepare: func() error { return errors.Join(makeOut(), writeMany(2000, 0)) }, run: func() error { return renameMany(2000) }},
	"git-status":       {warm: true, run: command("git", "status", "--porcelain")},
	"rg":               {warm: true, run: command("rg", "-c", "--no-ignore", "needle", "tree")},
	"tar-x":            {prepare: makeOut, run: command("tar", "-x", "-C", "out", "-f", "tree.tar")},
	"npm-ci":           {prepare: makeNode, run: command("npm", "ci", "--prefix", "out", "--silent", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", "npm/cache")},
}

func main() {
	seconds, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "workspacebench:", err)
		os.Exit(1)
	}
	fmt.Println(strconv.FormatFloat(seconds, 'f', 9, 64))
}

func run(args []string) (seconds float64, err error) {
	if len(args) != 1 {
		return 0, errors.New("usage: workspacebench WORKLOAD")
	}
	w, ok := workloads[args[0]]
	if !ok {
		return 0, fmt.Errorf("there is no workload %s", args[0])
	}
	if w.prepare != nil {
		defer func() { err = errors.Join(err, os.RemoveAll("out")) }()
		if err := w.prepare(); err != nil {
			return 0, err
		}
	}
	if w.warm {
		if err := w.run(); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	err = w.run()
	return time.Since(begin).Seconds(), err
}

// The tree has 5,000 files, forty in a directory; see the script.
const treeFiles = 5000

func treeFile(n int) string { return fmt.Sprintf("tree/%d/%d.txt", n/40, n%40) }

func eachFile(do func(string) error) error { return eachOf(treeFiles, do) }

func eachOf(count int, do func(string) error) error {
	for n := range count {
		if err := do(treeFile(n)); err != nil {
			return err
		}
	}
	return nil
}

var buffer [1 << 20]byte

func readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if _, err := f.Read(buffer[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func stat(name string) error {
	_, err := os.Lstat(name)
	return err
}

// rewrite writes the first byte of a file again: in an overlay it is copied for
// that.
func rewrite(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.ReadAt(buffer[:1], 0); err != nil {
		return err
	}
	_, err = f.WriteAt(buffer[:1], 0)
	return err
}

func makeOut() error { return os.Mkdir("out", 0o755) }

// makeNode makes a project of the packages that the script has put into npm's cache.
func makeNode() error {
	return errors.Join(makeOut(), command("cp", "npm/package.json", "npm/package-lock.json", "out")())
}

func outFile(n int) string { return "out/" + strconv.Itoa(n) }

func writeMany(count, size int) error {
	for n := range count {
		if err := os.WriteFile(outFile(n), buffer[:size], 0o644); err != nil {
			return err
		}
	}
	return nil
}

func removeMany(count int) error {
	for n := range count {
		if err := os.Remove(outFile(n)); err != nil {
			return err
		}
	}
	return nil
}

func renameMany(count int) error {
	for n := range count {
		if err := os.Rename(outFile(n), outFile(n)+".new"); err != nil {
			return err
		}
	}
	return nil
}

func writeLarge(name string, size int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	for written := 0; written < size && err == nil; written += len(buffer) {
		_, err = f.Write(buffer[:])
	}
	return errors.Join(err, f.Close())
}

func command(argv ...string) func() error {
	return func() error {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", argv[0], err, out)
		}
		return nil
	}
}
