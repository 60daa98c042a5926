package archive

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const blockSize = 512

// header is what stands before a file. It is written by hand: what the standard
// library makes of it may change with its version and has no holes.
type header struct {
	name     string
	kind     byte
	mode     uint32
	uid, gid uint32
	size     int64
	sec      int64
	nsec     int64
	link     string
	records  []string // further "key=value" of the extended header
}

// append adds the extended header, if there is anything that the plain one cannot
// say, and the plain one.
func (h *header) append(b []byte) ([]byte, error) {
	records := slices.Clone(h.records)
	add := func(needed bool, key, value string) {
		if needed {
			records = append(records, key+"="+value)
		}
	}
	add(!fits(h.name, 100), "path", h.name)
	add(!fits(h.link, 100), "linkpath", h.link)
	add(h.nsec != 0 || h.sec < 0 || h.sec >= 1<<33, "mtime", paxTime(h.sec, h.nsec))
	add(h.uid >= 1<<21, "uid", strconv.FormatUint(uint64(h.uid), 10))
	add(h.gid >= 1<<21, "gid", strconv.FormatUint(uint64(h.gid), 10))
	add(h.size >= 1<<33, "size", strconv.FormatInt(h.size, 10))
	if len(records) > 0 {
		slices.Sort(records)
		var body []byte
		for _, r := range records {
			body = appendRecord(body, r)
		}
		if len(body) > 1<<20 {
			return nil, fmt.Errorf("%s: more than a megabyte of attributes", h.name)
		}
		x := header{name: "././@PaxHeader", kind: 'x', mode: 0o644, size: int64(len(body))}
		b = append(x.appendBlock(b), body...)
		b = append(b, make([]byte, padding(int64(len(body))))...)
	}
	return h.appendBlock(b), nil
}

// fits says whether a text can stand in a field of the plain header.
func fits(text string, size int) bool {
	if len(text) > size {
		return false
	}
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// appendRecord adds a record, whose length counts its own digits.
func appendRecord(b []byte, record string) []byte {
	size := len(record) + 3
	for {
		line := strconv.Itoa(size) + " " + record + "\n"
		if len(line) == size {
			return append(b, line...)
		}
		size = len(line)
	}
}

// paxTime is seconds with as many decimals as it takes.
func paxTime(sec, nsec int64) string {
	if nsec == 0 {
		return strconv.FormatInt(sec, 10)
	}
	sign := ""
	if sec < 0 {
		sign, sec, nsec = "-", -(sec + 1), 1_000_000_000-nsec
	}
	return sign + strings.TrimRight(fmt.Sprintf("%d.%09d", sec, nsec), "0")
}

// appendBlock adds the plain header. What does not fit is in the extended one.
func (h *header) appendBlock(b []byte) []byte {
	var block [blockSize]byte
	copyField(block[0:100], h.name)
	octal(block[100:108], int64(h.mode))
	octal(block[108:116], int64(h.uid))
	octal(block[116:124], int64(h.gid))
	octal(block[124:136], h.size)
	octal(block[136:148], max(h.sec, 0))
	copy(block[148:156], "        ")
	block[156] = h.kind
	copyField(block[157:257], h.link)
	copy(block[257:], "ustar\x0000")
	octal(block[329:337], 0)
	octal(block[337:345], 0)
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return append(b, block[:]...)
}

// copyField writes what is ASCII of a text, for readers that know nothing better.
func copyField(field []byte, text string) {
	n := 0
	for i := 0; i < len(text) && n < len(field); i++ {
		if text[i] < 0x80 {
			field[n] = text[i]
			n++
		}
	}
}

// octal writes a number that fits, or 0.
func octal(field []byte, value int64) {
	digits := len(field) - 1
	if value>>(3*digits) != 0 {
		value = 0
	}
	for i := digits - 1; i >= 0; i-- {
		field[i] = '0' + byte(value&7)
		value >>= 3
	}
}

func padding(size int64) int64 { return (blockSize - size%blockSize) % blockSize }
