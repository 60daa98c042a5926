package archive

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A run of zero bytes counts as a hole if it is at least this long, whether or not
// the disk has one there: what the disk has depends on the file system, and the
// archive must not.
const (
	minHole   = 64 << 10
	holeBlock = 4096
)

// segment is a part of a file that is not a hole.
type segment struct{ at, size int64 }

// findSegments returns what is between the holes of a file, or nil if it has none.
// A hole begins and ends on a block.
func findSegments(f *os.File, size int64) ([]segment, error) {
	if size < minHole {
		return nil, nil
	}
	s := scanner{size: size}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break
		}
		if err != nil {
			data = at
		}
		end, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil || end > size {
			end = size
		}
		if err := s.scan(f, data/holeBlock*holeBlock, end); err != nil {
			return nil, err
		}
		at = max(end, at+1)
	}
	return s.result(), nil
}

type scanner struct {
	size     int64
	segments []segment // with every hole, however short
}

// scan looks for blocks with something in them.
func (s *scanner) scan(f *os.File, at, end int64) error {
	b := make([]byte, 256<<10)
	for at < end {
		want := min(int64(len(b)), s.size-at)
		n, err := f.ReadAt(b[:want], at)
		if err != nil && err != io.EOF {
			return err
		}
		if n == 0 {
			return nil
		}
		for from := 0; from < n; from += holeBlock {
			to := min(from+holeBlock, n)
			if !isZero(b[from:to]) {
				s.add(at+int64(from), int64(to-from))
			}
		}
		at += int64(n)
	}
	return nil
}

// add adds a block, and closes gaps that are too short to be holes.
func (s *scanner) add(at, size int64) {
	if last := len(s.segments) - 1; last >= 0 {
		l := &s.segments[last]
		if at < l.at+l.size { // read twice
			return
		}
		if at-(l.at+l.size) < minHole {
			l.size = at + size - l.at
			return
		}
	} else if at < minHole {
		at, size = 0, at+size
	}
	s.segments = append(s.segments, segment{at, size})
}

// result ends with an empty segment where the file ends with a hole, so that
// readers know how long it is.
func (s *scanner) result() []segment {
	end := int64(0)
	if last := len(s.segments) - 1; last >= 0 {
		l := &s.segments[last]
		if s.size-(l.at+l.size) < minHole {
			l.size = s.size - l.at
		}
		end = l.at + l.size
	}
	if end < s.size {
		s.segments = append(s.segments, segment{s.size, 0})
	}
	if len(s.segments) == 1 && s.segments[0] == (segment{0, s.size}) {
		return nil
	}
	return s.segments
}

func isZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
