package limits

import (
	"encoding/binary"
	"errors"
)

// encoder writes values as D-Bus does: each aligned to its size, from the
// beginning of the message or, which is the same, of its body.
type encoder struct{ data []byte }

// marshal is the form of a single string.
func marshal(s string) []byte {
	var e encoder
	e.text(s)
	return e.data
}

func (e *encoder) align(n int) {
	for len(e.data)%n != 0 {
		e.data = append(e.data, 0)
	}
}

func (e *encoder) uint32(v uint32) {
	e.align(4)
	e.data = binary.LittleEndian.AppendUint32(e.data, v)
}

func (e *encoder) text(s string) {
	e.uint32(uint32(len(s)))
	e.data = append(append(e.data, s...), 0)
}

func (e *encoder) signature(s string) {
	e.data = append(append(append(e.data, byte(len(s))), s...), 0)
}

// array writes elements of some alignment. Its length does not count the padding
// before the first.
func (e *encoder) array(align int, elements func()) {
	e.uint32(0)
	at := len(e.data) - 4
	e.align(align)
	begin := len(e.data)
	elements()
	binary.LittleEndian.PutUint32(e.data[at:], uint32(len(e.data)-begin))
}

// property writes a structure of a name and a value with its type.
func (e *encoder) property(name, kind string, value func()) {
	e.align(8)
	e.text(name)
	e.signature(kind)
	value()
}

// field writes a field of a header.
func (e *encoder) field(code byte, kind, value string) {
	e.align(8)
	e.data = append(e.data, code)
	e.signature(kind)
	e.text(value)
}

// decoder reads what an encoder writes. It believes no length.
type decoder struct {
	data []byte
	at   int
}

var errMessage = errors.New("it sent something that is no message")

func (d *decoder) align(n int) { d.at = (d.at + n - 1) / n * n }

func (d *decoder) take(n int) ([]byte, error) {
	if n < 0 || d.at > len(d.data) || n > len(d.data)-d.at {
		return nil, errMessage
	}
	d.at += n
	return d.data[d.at-n : d.at], nil
}

func (d *decoder) byte() (byte, error) {
	b, err := d.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (d *decoder) uint32() (uint32, error) {
	d.align(4)
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (d *decoder) text() (string, error) {
	n, err := d.uint32()
	if err != nil {
		return "", err
	}
	return d.string(int(n))
}

func (d *decoder) signature() (string, error) {
	n, err := d.byte()
	if err != nil {
		return "", err
	}
	return d.string(int(n))
}

// string reads the bytes of a string and the NUL after them.
func (d *decoder) string(n int) (string, error) {
	b, err := d.take(n)
	if err != nil {
		return "", err
	}
	end, err := d.byte()
	if err != nil || end != 0 {
		return "", errMessage
	}
	return string(b), nil
}
