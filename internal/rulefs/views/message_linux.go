package views

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// Socket is where the server finds its end of the connection.
const Socket = 3

// Kinds of requests.
const (
	KindOpen   = 'o' // with a directory; the answer comes with a mount
	KindChange = 'c'
	KindClose  = 'x'
)

// Request is what the server is asked.
type Request struct {
	Kind  byte
	View  string
	Rules [][]pathrule.Rule
}

// Answer is what it says.
type Answer struct{ Error string }

// maxMessage bounds a request. Rules that are longer nobody has written.
const maxMessage = 128 << 10

func send(socket int, message any, file *os.File) error {
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	return Send(socket, message, rights)
}

// Send sends a message, with descriptors.
func Send(socket int, message any, rights []byte) error {
	data := wire.Append(nil, message)
	if len(data) > maxMessage {
		return errors.New("the rules are too long")
	}
	for {
		if err := unix.Sendmsg(socket, data, rights, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

// Receive waits for a message, and the descriptor that came with it, or -1.
func Receive(socket int, message any) (fd int, err error) {
	data, control := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	var n, used int
	for {
		n, used, _, _, err = unix.Recvmsg(socket, data, control, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, err
	}
	if n == 0 {
		return -1, io.EOF
	}
	fd = descriptor(control[:used])
	if err := wire.Decode(data[:n], message); err != nil {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return -1, err
	}
	return fd, nil
}

func descriptor(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return -1
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1
	}
	return fds[0]
}
