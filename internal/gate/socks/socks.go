// Package socks speaks SOCKS: versions 5, 4 and 4a to clients, version 5 to a
// proxy. It has the handshakes and nothing else. A name is handed on as it came,
// unresolved, and no byte is read beyond the handshake, so that what follows can
// be looked at and then relayed by the kernel: this, and that a name must be in
// its canonical form before anybody sees it, is why it is written here.
package socks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// Reply is the answer to a request, in the numbers of version 5.
type Reply byte

const (
	Succeeded Reply = iota
	Failed
	NotAllowed
	NetworkUnreachable
	HostUnreachable
	ConnectionRefused
	Expired
	CommandNotSupported
	AddressNotSupported
)

const (
	version5 = 5
	version4 = 4

	commandConnect = 1

	addressIPv4 = 1
	addressName = 3
	addressIPv6 = 4

	methodNone     = 0
	methodPassword = 2
	methodRefused  = 0xff

	granted4  = 0x5a
	rejected4 = 0x5b

	maxText = 255 // of a name or a user
)

// Request is a connection that a client wants.
type Request struct {
	Host hostname.Host
	Port uint16

	version byte
}

// Error is a request that cannot be served. The client has been told so.
type Error struct {
	Reply Reply
	Err   error
}

func (e *Error) Error() string { return "socks: " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Begins says whether a connection begins with this byte.
func Begins(b byte) bool { return b == version5 || b == version4 }

// Accept reads what a client wants, and answers it if that cannot be had. After
// a request it is for the caller to Answer.
func Accept(r *bufio.Reader, w io.Writer) (Request, error) {
	version, err := r.ReadByte()
	if err != nil {
		return Request{}, err
	}
	request := Request{version: version}
	switch version {
	case version5:
		err = request.read5(r, w)
	case version4:
		err = request.read4(r)
	default:
		return Request{}, fmt.Errorf("socks: unknown version %d", version)
	}
	var refused *Error
	if errors.As(err, &refused) {
		if err := request.Answer(w, refused.Reply); err != nil {
			return Request{}, err
		}
	}
	if err != nil {
		return Request{}, err
	}
	return request, nil
}

// Answer tells the client how its request ended.
func (q *Request) Answer(w io.Writer, reply Reply) error {
	answer := []byte{version5, byte(reply), 0, addressIPv4, 0, 0, 0, 0, 0, 0}
	if q.version == version4 {
		answer = make([]byte, 8)
		answer[1] = rejected4
		if reply == Succeeded {
			answer[1] = granted4
		}
	}
	_, err := w.Write(answer)
	return err
}

func (q *Request) read5(r *bufio.Reader, w io.Writer) error {
	if err := chooseMethod(r, w); err != nil {
		return err
	}
	var head [4]byte // version, command, reserved, kind of address
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if head[0] != version5 || head[2] != 0 {
		return &Error{Failed, errors.New("malformed request")}
	}
	host, err := readAddress(r, head[3])
	if err != nil {
		return err
	}
	var port [2]byte
	if _, err := io.ReadFull(r, port[:]); err != nil {
		return err
	}
	if head[1] != commandConnect {
		return &Error{CommandNotSupported, fmt.Errorf("command %d: only connections can be made, without UDP and without listening", head[1])}
	}
	return q.set(host, binary.BigEndian.Uint16(port[:]))
}

// chooseMethod wants a client that needs no authentication: nobody else can
// reach the socket.
func chooseMethod(r *bufio.Reader, w io.Writer) error {
	n, err := r.ReadByte()
	if err != nil {
		return err
	}
	methods := make([]byte, n)
	if _, err := io.ReadFull(r, methods); err != nil {
		return err
	}
	for _, m := range methods {
		if m == methodNone {
			_, err := w.Write([]byte{version5, methodNone})
			return err
		}
	}
	if _, err := w.Write([]byte{version5, methodRefused}); err != nil {
		return err
	}
	return errors.New("socks: the client insists on authentication")
}

// readAddress returns the text of a host.
func readAddress(r *bufio.Reader, kind byte) (string, error) {
	var size int
	switch kind {
	case addressIPv4:
		size = 4
	case addressIPv6:
		size = 16
	case addressName:
		n, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		size = int(n)
	default:
		return "", &Error{AddressNotSupported, fmt.Errorf("unknown kind of address %d", kind)}
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	if kind == addressName {
		return string(text), nil
	}
	a, _ := netip.AddrFromSlice(text)
	return a.String(), nil
}

// read4 reads a request of version 4, or of 4a if the address is 0.0.0.x.
func (q *Request) read4(r *bufio.Reader) error {
	var head [7]byte // command, port, address
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if _, err := readText(r); err != nil { // the user
		return err
	}
	addr := netip.AddrFrom4([4]byte(head[3:]))
	host := addr.String()
	if b := addr.As4(); b[0] == 0 && b[1] == 0 && b[2] == 0 && b[3] != 0 {
		name, err := readText(r)
		if err != nil {
			return err
		}
		host = name
	}
	if head[0] != commandConnect {
		return &Error{CommandNotSupported, fmt.Errorf("command %d: only connections can be made, without listening", head[0])}
	}
	return q.set(host, binary.BigEndian.Uint16(head[1:]))
}

// readText reads up to a zero byte.
func readText(r *bufio.Reader) (string, error) {
	var text []byte
	for {
		b, err := r.ReadByte()
		if err != nil {
			return "", err
		}
		if b == 0 {
			return string(text), nil
		}
		if text = append(text, b); len(text) > maxText {
			return "", &Error{Failed, errors.New("text is too long")}
		}
	}
}

func (q *Request) set(host string, port uint16) error {
	h, err := hostname.Parse(host)
	if err != nil {
		return &Error{AddressNotSupported, err}
	}
	if port == 0 {
		return &Error{Failed, errors.New("port is missing")}
	}
	q.Host, q.Port = h, port
	return nil
}
