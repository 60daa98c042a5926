package broker

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// programs knows the files of the programs that rules are about, to recognise
// exact copies and hard links of them.
type programs struct {
	once  sync.Once
	files []programFile

	mu    sync.Mutex
	known map[content][]string // what a file was found to be
}

// programFile is one program, by every name that rules have for it.
type programFile struct {
	content
	name string
	sum  [sha256.Size]byte // once it was needed
	has  bool
	fd   int // by O_PATH
}

// content is a file in a state.
type content struct {
	dev, ino uint64
	size     int64
	sec      int64
	nsec     int64
}

func contentOf(fd int) (content, bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return content{}, false
	}
	return content{st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec}, true
}

// same names the programs whose file this is, or has the content of. Only a file
// that the sandbox could have made can be a copy; others are known by name.
func (p *programs) same(w *worker, fd int, real string) []string {
	if w.execs.rules == nil || !w.couldBeCopy(real) {
		return nil
	}
	c, ok := contentOf(fd)
	if !ok {
		return nil
	}
	p.once.Do(func() { p.find(w) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if names, ok := p.known[c]; ok {
		return names
	}
	names := p.compare(w, fd, c)
	if p.known == nil || len(p.known) > 1024 {
		p.known = make(map[content][]string)
	}
	p.known[c] = names
	return names
}

// couldBeCopy says whether a file lies where the command can write, or has no
// name.
func (w *worker) couldBeCopy(real string) bool {
	if real == "" {
		return true
	}
	a, _ := w.spec.Access(real)
	return a >= spec.AccessPrivate
}

func (p *programs) compare(w *worker, fd int, c content) []string {
	var names []string
	var sum [sha256.Size]byte
	summed := false
	for i := range p.files {
		f := &p.files[i]
		switch {
		case f.dev == c.dev && f.ino == c.ino:
			names = append(names, f.name)
			continue
		case f.size != c.size:
			continue
		}
		if !summed {
			if sum, summed = w.checksum(fd); !summed {
				return names
			}
		}
		if !f.has {
			f.sum, f.has = w.checksum(f.fd)
		}
		if f.has && f.sum == sum {
			names = append(names, f.name)
		}
	}
	return names
}

// find opens the programs that rules are about, as the sandbox finds them.
func (p *programs) find(w *worker) {
	var path string
	for _, v := range w.spec.Env {
		if rest, ok := strings.CutPrefix(v, "PATH="); ok {
			path = rest
		}
	}
	dirs := append(strings.Split(path, ":"), "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/lib/git-core")
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for _, name := range w.execs.rules.Programs() {
		if strings.HasPrefix(name, "/") {
			p.add(w, name, name)
			continue
		}
		for _, dir := range dirs {
			if strings.HasPrefix(dir, "/") {
				p.add(w, name, dir+"/"+name)
			}
		}
	}
}

func (p *programs) add(w *worker, name, file string) {
	fd, errno := w.openInside(file, 0)
	if errno != 0 {
		return
	}
	c, ok := contentOf(fd)
	if !ok {
		_ = unix.Close(fd)
		return
	}
	p.files = append(p.files, programFile{content: c, name: name, fd: fd})
}

// checksum reads a whole file.
func (w *worker) checksum(fd int) (sum [sha256.Size]byte, ok bool) {
	file, err := w.openContent(fd)
	if err != nil {
		return sum, false
	}
	defer func() { _ = unix.Close(file) }()
	hash := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(file, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return sum, false
		}
		if n == 0 {
			hash.Sum(sum[:0])
			return sum, true
		}
		hash.Write(buf[:n])
	}
}
