// Package hello reads the first message of a TLS client: which server it asks
// for. It is strict where two readers could disagree, since the server reads the
// same bytes afterwards.
package hello

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// MaxSize bounds what has to be buffered for a Hello: generous for keys that
	// resist quantum computers, small for whoever sends it by the byte.
	MaxSize = 64 << 10

	recordHeader   = 5
	maxRecord      = 1 << 14
	maxRecords     = 64
	typeHandshake  = 22
	typeClient     = 1
	extServerName  = 0
	extALPN        = 16
	extECH         = 0xfe0d
	extESNI        = 0xffce // what became ECH
	nameTypeHost   = 0
	handshakeBytes = 4 // type and length
)

// Hello is what a client says before anything is secret.
type Hello struct {
	ServerName string   // empty if there is none
	Protocols  []string // ALPN
	// Encrypted says that the real name may be another one, which only the
	// server can read (ECH).
	Encrypted bool
}

// Incomplete says that a Hello needs more bytes than there are.
type Incomplete struct {
	Need int // at least
}

func (e *Incomplete) Error() string {
	return fmt.Sprintf("the hello is incomplete: at least %d bytes are needed", e.Need)
}

// Begins says whether bytes are the beginning of a TLS connection: a handshake
// record of any version of TLS. It wants three bytes.
func Begins(b []byte) bool {
	return len(b) >= 3 && b[0] == typeHandshake && b[1] == 3 && b[2] <= 4
}

// Parse reads a Hello, which may be spread over several records. The error is an
// *Incomplete if b has only the beginning of it.
func Parse(b []byte) (Hello, error) {
	message, err := handshake(b)
	if err != nil {
		return Hello{}, err
	}
	var h Hello
	if !h.read(message) {
		return Hello{}, errors.New("the hello is malformed")
	}
	return h, nil
}

// handshake collects the first handshake message from its records.
func handshake(b []byte) ([]byte, error) {
	var message []byte
	offset := 0
	for range maxRecords {
		if len(b)-offset < recordHeader {
			return nil, incomplete(offset + recordHeader)
		}
		head := b[offset : offset+recordHeader]
		size := int(binary.BigEndian.Uint16(head[3:]))
		if !Begins(head) || size == 0 || size > maxRecord {
			return nil, errors.New("not a TLS handshake")
		}
		if len(b)-offset < recordHeader+size {
			return nil, incomplete(offset + recordHeader + size)
		}
		message = append(message, b[offset+recordHeader:offset+recordHeader+size]...)
		offset += recordHeader + size
		if len(message) < handshakeBytes {
			continue
		}
		want := handshakeBytes + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		switch {
		case message[0] != typeClient:
			return nil, errors.New("not the hello of a client")
		case want > MaxSize:
			return nil, errors.New("the hello is too large")
		case len(message) > want:
			// A second message in the same record, which no client sends here.
			return nil, errors.New("the hello is followed by something else")
		case len(message) == want:
			return message[handshakeBytes:], nil
		}
	}
	return nil, errors.New("the hello is in too many pieces")
}

func incomplete(need int) error {
	if need > MaxSize {
		return errors.New("the hello is too large")
	}
	return &Incomplete{need}
}

func (h *Hello) read(b []byte) bool {
	r := reader(b)
	const version, random = 2, 32
	if _, ok := r.take(version + random); !ok {
		return false
	}
	session, ok1 := r.vector8()
	suites, ok2 := r.vector16()
	compression, ok3 := r.vector8()
	if !ok1 || !ok2 || !ok3 || len(session) > 32 || len(suites) < 2 || len(suites)%2 != 0 || len(compression) == 0 {
		return false
	}
	if len(r) == 0 {
		return true // no extensions, as in the last century
	}
	extensions, ok := r.vector16()
	if !ok || len(r) != 0 {
		return false
	}
	return h.readExtensions(extensions)
}

func (h *Hello) readExtensions(r reader) bool {
	seen := map[uint16]bool{}
	for len(r) > 0 {
		kind, ok1 := r.uint16()
		data, ok2 := r.vector16()
		// Which of two would count is up to the server.
		if !ok1 || !ok2 || seen[kind] {
			return false
		}
		seen[kind] = true
		ok := true
		switch kind {
		case extServerName:
			ok = h.readServerName(data)
		case extALPN:
			ok = h.readProtocols(data)
		case extECH, extESNI:
			h.Encrypted = true
		}
		if !ok {
			return false
		}
	}
	return true
}

// readServerName wants exactly one name, and that of a host.
func (h *Hello) readServerName(r reader) bool {
	list, ok := r.vector16()
	if !ok || len(r) != 0 {
		return false
	}
	kind, ok1 := list.take(1)
	name, ok2 := list.vector16()
	if !ok1 || !ok2 || kind[0] != nameTypeHost || len(name) == 0 || len(list) != 0 {
		return false
	}
	h.ServerName = string(name)
	return true
}

func (h *Hello) readProtocols(r reader) bool {
	list, ok := r.vector16()
	if !ok || len(r) != 0 {
		return false
	}
	for len(list) > 0 {
		name, ok := list.vector8()
		if !ok || len(name) == 0 {
			return false
		}
		h.Protocols = append(h.Protocols, string(name))
	}
	return true
}

// reader takes things from the front of a message.
type reader []byte

func (r *reader) take(n int) (reader, bool) {
	if len(*r) < n {
		return nil, false
	}
	taken := (*r)[:n]
	*r = (*r)[n:]
	return taken, true
}

func (r *reader) uint16() (uint16, bool) {
	b, ok := r.take(2)
	if !ok {
		return 0, false
	}
	return binary.BigEndian.Uint16(b), true
}

// vector8 takes bytes after their number in one byte, vector16 in two.
func (r *reader) vector8() (reader, bool) {
	n, ok := r.take(1)
	if !ok {
		return nil, false
	}
	return r.take(int(n[0]))
}

func (r *reader) vector16() (reader, bool) {
	n, ok := r.uint16()
	if !ok {
		return nil, false
	}
	return r.take(int(n))
}
