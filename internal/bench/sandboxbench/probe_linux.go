package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/bench/walls"
)

// probeWord is the first argument of this program inside. The second is a nonce, which it
// writes first of all; the third says what to do then.
const probeWord = "bench-probe"

// probe is this program inside.
func probe(args []string) int {
	if len(args) < 2 {
		return 2
	}
	fmt.Printf("%s\n", args[0])
	var err error
	switch args[1] {
	case "nothing":
	case "look":
		err = json.NewEncoder(os.Stdout).Encode(look())
	case "idle":
		_, err = io.Copy(io.Discard, os.Stdin) // until whoever started this goes
	case "allocate":
		err = allocate(args[2])
	case "busy":
		fmt.Printf("%.3f\n", busy())
	case "cpu":
		tellTime(countUp)
	case "stat":
		tellTime(func() { err = walk(args[2]) })
	default:
		return 2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// look sees what stands around this process.
func look() *walls.View {
	v := &walls.View{UID: os.Getuid(), Sets: map[string]string{}}
	status, _ := os.ReadFile("/proc/self/status") // without it nothing is claimed
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case strings.HasPrefix(name, "Cap"):
			v.Sets[name] = value
		case name == "Seccomp":
			v.Filter = value == "2"
		}
	}
	privs, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	v.NoNewPrivs = privs == 1
	for _, dir := range []string{"/", "/bin", "/etc", "/usr", "/lib", "/proc/sys/kernel"} {
		if f, err := os.CreateTemp(dir, "bench"); err == nil {
			v.Written = append(v.Written, dir)
			_ = os.Remove(f.Name())
		}
	}
	v.Interfaces = interfaces()
	v.Descriptors = descriptors()
	return v
}

// interfaces are those of the network besides loopback.
func interfaces() (list []string) {
	text, _ := os.ReadFile("/proc/net/dev") // without a network there is none
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			list = append(list, strings.TrimSpace(name))
		}
	}
	return list
}

// descriptors are those that this process was started with, besides its streams: whatever
// it opens itself is not to be seen any more when an entry is looked at.
func descriptors() (list []int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.Contains(target, "[event") || strings.HasSuffix(target, "/fd") {
			continue // of the Go runtime, and the directory that was read
		}
		list = append(list, fd)
	}
	return list
}

// allocate uses so many megabytes.
func allocate(megabytes string) error {
	n, err := strconv.Atoi(megabytes)
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	fmt.Println("had", n)
	return nil
}

// busy says how many processors this process can keep busy, by what all of them do
// together and what one does when nothing is in its way: not every kernel says how much
// time of a processor was really had.
func busy() float64 {
	const round, long = 20_000, 600 * time.Millisecond
	best := 0.0
	for begin := time.Now(); time.Since(begin) < long; {
		before := time.Now()
		countTo(round)
		best = max(best, round/time.Since(before).Seconds())
	}
	begin := time.Now()
	counts := make(chan int, runtime.NumCPU())
	for range runtime.NumCPU() {
		go func() {
			rounds := 0
			for ; time.Since(begin) < long; rounds++ {
				countTo(round)
			}
			counts <- rounds
		}()
	}
	total := 0
	for range runtime.NumCPU() {
		total += <-counts
	}
	return float64(total) * round / time.Since(begin).Seconds() / best
}

// tellTime writes how many milliseconds something took, by the clock of this side.
func tellTime(work func()) {
	begin := time.Now()
	work()
	fmt.Printf("%.4f\n", float64(time.Since(begin))/float64(time.Millisecond))
}

// Sizes of the work.
const (
	cpuRounds = 20_000_000
	statDirs  = 20
	statFiles = 50
)

func countUp() { countTo(cpuRounds) }

// countTo is a loop of integer operations, each of which needs the one before.
func countTo(n uint64) {
	x := uint64(88172645463325252)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	runtime.KeepAlive(x)
}

// walk looks at every file of a tree, with a system call for each.
func walk(root string) error {
	seen := 0
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		seen++
		_, err = os.Lstat(path)
		return err
	})
	if err == nil && seen != 1+statDirs+statDirs*statFiles {
		return fmt.Errorf("saw %d files", seen)
	}
	return err
}

// plant makes the tree that walk goes through.
func plant(root string) error {
	for d := range statDirs {
		dir := filepath.Join(root, "d"+strconv.Itoa(d))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for f := range statFiles {
			if err := os.WriteFile(filepath.Join(dir, "f"+strconv.Itoa(f)), nil, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer takes what the probe wrote apart: it must begin with the nonce. What follows is
// returned.
func answer(out []byte, nonce string) ([]byte, error) {
	line, rest, _ := bytes.Cut(out, []byte("\n"))
	if string(line) != nonce {
		return nil, fmt.Errorf("the nonce came back as %s", short(line))
	}
	return rest, nil
}

func short(text []byte) string {
	text = slices.Clone(text[:min(len(text), 60)])
	if len(text) == 0 {
		return "nothing"
	}
	return strconv.Quote(string(text))
}
