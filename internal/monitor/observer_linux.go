package monitor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/command"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Observer finds out what calls lack, each once.
type Observer struct {
	// Judge says what a call lacks.
	Judge *learn.Judge

	mu       sync.Mutex
	harmless map[look]bool
	lacking  map[look][]learn.Need
	full     bool // something lacked that is not in it
}

// look is what makes two calls equal.
type look struct {
	op, path    string
	write, gone bool
}

// maxLooks bounds what is remembered of calls: that lack nothing, and that lack
// something.
const maxLooks = 1 << 16

// Lacks returns what a call lacks. Its program is named if that is something.
func (b *Observer) Lacks(o broker.Observation) []learn.Need {
	key := look{o.Op, o.Path, o.Write, o.Gone}
	b.mu.Lock()
	needs, known := b.lacking[key]
	known = known || b.harmless[key]
	b.mu.Unlock()
	if known {
		return needs
	}
	needs = b.Judge.Needs(learn.Call{Op: o.Op, Path: o.Path, Write: o.Write, Gone: o.Gone}, HostFiles{})
	if len(needs) > 0 {
		program := broker.ProcessName(o.Pid)
		for i := range needs {
			needs[i].Program = program
		}
	}
	b.remember(key, needs)
	return needs
}

func (b *Observer) remember(key look, needs []learn.Need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(needs) == 0:
		if b.harmless == nil || len(b.harmless) >= maxLooks {
			b.harmless = map[look]bool{}
		}
		b.harmless[key] = true
	case len(b.lacking) >= maxLooks:
		b.full = true
	default:
		if b.lacking == nil {
			b.lacking = map[look][]learn.Need{}
		}
		b.lacking[key] = needs
	}
}

// All returns everything that was lacked.
func (b *Observer) All() []learn.Need {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []learn.Need
	for _, needs := range b.lacking {
		out = append(out, needs...)
	}
	return out
}

// IsFull says whether something was lacked that All does not return.
func (b *Observer) IsFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.full
}

// HostFiles are the files of the machine, as this process sees them.
type HostFiles struct{}

var _ learn.Files = HostFiles{}

// Look implements learn.Files. A link that leads nowhere is nothing.
func (HostFiles) Look(path string) (learn.File, bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return learn.File{}, false
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	var buf [unix.PathMax]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil || unix.Fstat(fd, &st) != nil {
		return learn.File{}, false
	}
	return learn.File{Real: string(buf[:n]), Dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, true
}

// Names implements learn.Files. Of a directory with very many, some.
func (HostFiles) Names(dir string) []string {
	const most = 4096
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(most) // what could be read is better than nothing
	return names
}

// May implements learn.Files. The owner of a file may change its mode and its dates
// though not what it holds.
func (HostFiles) May(path string, write bool) bool {
	mode := uint32(unix.R_OK)
	if write {
		mode = unix.W_OK
	}
	if unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS) == nil {
		return true
	}
	var st unix.Stat_t
	return write && unix.Stat(path, &st) == nil && int(st.Uid) == unix.Geteuid()
}

// Interpreter implements learn.Files.
func (HostFiles) Interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = unix.Close(fd) }()
	var buf [256]byte // as much as the kernel looks at
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil || n < 2 || buf[0] != '#' || buf[1] != '!' {
		return ""
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	name, _ := command.Shebang(line)
	return name
}

// MakeObservable has the kernel tell about every call that names a file.
func MakeObservable(s *spec.Spec) {
	if s.Broker == nil {
		s.Broker = &spec.Broker{Sockets: spec.Sockets{All: true}}
	}
	s.Broker.Observe = true
}

// RealHome is the home directory without links, or "".
func RealHome() string {
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		return real
	}
	return filepath.Clean(home)
}
