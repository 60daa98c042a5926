package change

import (
	"time"

	"golang.org/x/sys/unix"
)

// Print identifies the state that a file is in. Of directories only what they are
// and their mode counts: what is in them has prints of its own.
type Print struct {
	Type  FileType `json:"type,omitempty"` // empty if there is nothing
	Mode  uint32   `json:"mode,omitempty"`
	Size  int64    `json:"size,omitempty"`
	Mtime int64    `json:"mtime,omitempty"` // in nanoseconds
	Ctime int64    `json:"ctime,omitempty"`
	Ino   uint64   `json:"ino,omitempty"`
	Dev   uint64   `json:"dev,omitempty"`
}

func printStat(st *unix.Stat_t) Print {
	p := Print{Type: typeOf(st.Mode), Mode: st.Mode & 0o7777}
	if p.Type != Dir {
		p.Size, p.Mtime, p.Ctime, p.Ino, p.Dev = st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Ino, st.Dev
	}
	return p
}

// printOf takes the print of a path.
func printOf(r root, name string) (Print, error) {
	st, found, err := r.lstat(name)
	if err != nil || !found {
		return Print{}, err
	}
	return printStat(&st), nil
}

// isLate says whether a file was changed after a time.
func (p *Print) isLate(since time.Time) bool { return p.Type != Dir && p.Ctime > since.UnixNano() }

// isLike says whether two prints may be of a file and of a copy of it.
func (p *Print) isLike(q *Print) bool {
	return p.Type == q.Type && p.Mode == q.Mode && (p.Type == Dir || p.Type == Link || p.Size == q.Size && p.Mtime == q.Mtime)
}
