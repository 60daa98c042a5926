package transport

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// journal knows which requests were begun and are not over, also those of an
// earlier process, and which commands were run of late. What it writes survives the end of the process; with that of the
// machine, sandboxes end as well.
type journal struct {
	mu   sync.Mutex
	path string
	file *os.File // nil if nothing is to survive
	size int64
	open map[string]begun // by the request's id
	ran  []string         // ids of commands that are over, the oldest first; they stay open for the next process
}

// begun is a request that is not over.
type begun struct {
	at   time.Time
	seed []byte // for the names of what it makes
	own  bool   // this process has begun it
}

// An entry of the journal is a mark, the id as digest writes it, the time and the
// seed. Those of requests that are over are dropped when there are many.
const (
	entryBegun, entryOver = '+', '-'

	idSize      = 64
	seedSize    = 16
	entrySize   = 1 + idSize + 8 + seedSize
	journalSize = 4 << 20
)

// openJournal reads what an earlier process has left; without a path there is none.
func openJournal(path string) (*journal, error) {
	j := &journal{path: path, open: map[string]begun{}}
	if path == "" {
		return j, nil
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for ; len(data) >= entrySize; data = data[entrySize:] {
		id := string(data[1 : 1+idSize])
		at := time.Unix(0, int64(binary.BigEndian.Uint64(data[1+idSize:]))) //nolint:gosec // as it was written
		switch {
		case data[0] == entryOver:
			delete(j.open, id)
		case time.Since(at) < keyLifetime:
			j.open[id] = begun{at, bytes.Clone(data[entrySize-seedSize : entrySize]), false}
		}
	}
	return j, j.rewrite()
}

// begin writes down that a request begins. If it had begun before in another
// process, it has the same seed, and again is true.
func (j *journal) begin(id string) (seed []byte, again bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b, ok := j.open[id]; ok && !b.own {
		return b.seed, true, nil
	}
	b := begun{time.Now(), make([]byte, seedSize), true}
	_, _ = rand.Read(b.seed) // never fails
	j.open[id] = b
	return b.seed, false, j.write(entryBegun, id, b)
}

// end writes down that a request is over. Of a command that was run only this
// process has the answer: the next must know that it was.
func (j *journal) end(id string, ran bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ran {
		if j.ran = append(j.ran, id); len(j.ran) <= keptCommands {
			return nil
		}
		id, j.ran = j.ran[0], j.ran[1:]
	}
	delete(j.open, id)
	if j.size > journalSize {
		return j.rewrite()
	}
	return j.write(entryOver, id, begun{seed: make([]byte, seedSize)})
}

func (j *journal) write(mark byte, id string, b begun) error {
	if j.file == nil {
		return nil
	}
	n, err := j.file.Write(appendEntry(nil, mark, id, b))
	j.size += int64(n)
	return err
}

func appendEntry(data []byte, mark byte, id string, b begun) []byte {
	data = append(append(data, mark), id...)
	data = binary.BigEndian.AppendUint64(data, uint64(b.at.UnixNano())) //nolint:gosec // only its bits
	return append(data, b.seed...)
}

// rewrite leaves only what is open in the file, which another takes the place of.
func (j *journal) rewrite() error {
	var data []byte
	for id, b := range j.open {
		data = appendEntry(data, entryBegun, id, b)
	}
	next := j.path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if err := os.Rename(next, j.path); err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		_ = j.file.Close() // nothing in it is needed any more
	}
	j.file, j.size = f, int64(len(data))
	return nil
}
