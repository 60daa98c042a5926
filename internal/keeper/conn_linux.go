package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/peer"
	"github.com/bailey-sandbox/bailey/internal/wire"
)

// conn carries messages: four bytes of length, one of kind, and the data.
// Descriptors go with the first byte.
type conn struct {
	file *os.File
	mu   sync.Mutex // held while a message is written
	// site is that of the keeper at the other end, if it must answer in time; see
	// await.
	site    *Site
	greeter int // the process that has greeted, or 0
}

const (
	headerSize = 5
	// maxMessage bounds what a peer can make this process allocate.
	maxMessage = 16 << 20
	// maxFiles is the most descriptors a message has.
	maxFiles = 4
)

func (c *conn) close() { _ = c.file.Close() }

// send writes a message.
func (c *conn) send(k kind, message any, files ...*os.File) error {
	b := make([]byte, headerSize, 512)
	if message != nil {
		b = wire.Append(b, message)
	}
	if len(b)-headerSize > maxMessage {
		return unix.E2BIG
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)-headerSize))
	b[4] = byte(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.sendFiles(b, files)
	if err == nil && n < len(b) {
		_, err = c.file.Write(b[n:])
	}
	if errors.Is(err, unix.EAGAIN) {
		return c.silent()
	}
	return err
}

func (c *conn) sendFiles(b []byte, files []*os.File) (n int, err error) {
	if len(files) == 0 {
		return c.file.Write(b)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	werr := raw.Write(func(fd uintptr) bool {
		n, err = unix.SendmsgN(int(fd), b, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return n, errors.Join(err, werr)
}

// received is a message and what came with it.
type received struct {
	kind  kind
	data  []byte
	files []*os.File
	from  *unix.Ucred // who sent it, if that was asked for
}

func (r *received) close() {
	for _, f := range r.files {
		_ = f.Close()
	}
}

// decode reads the message's data.
func (r *received) decode(v any) error { return wire.Decode(r.data, v) }

// receive reads a message. The caller owns its files.
func (c *conn) receive() (*received, error) {
	var header [headerSize]byte
	r := &received{}
	n, err := c.receiveFiles(header[:], r)
	if err == nil {
		_, err = io.ReadFull(reader{c}, header[n:])
	}
	size := binary.NativeEndian.Uint32(header[:])
	if err == nil && size > maxMessage {
		err = fmt.Errorf("a message of %d bytes", size)
	}
	if err == nil {
		r.kind, r.data = kind(header[4]), make([]byte, size)
		_, err = io.ReadFull(reader{c}, r.data)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// reader reads what is left of a message.
type reader struct{ conn *conn }

func (r reader) Read(b []byte) (int, error) {
	if err := r.conn.await(); err != nil {
		return 0, err
	}
	return r.conn.file.Read(b)
}

func (c *conn) receiveFiles(b []byte, r *received) (n int, err error) {
	if err := c.await(); err != nil {
		return 0, err
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	control := make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	var used int
	rerr := raw.Read(func(fd uintptr) bool {
		n, used, _, _, err = unix.Recvmsg(int(fd), b, control, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err = errors.Join(err, rerr); err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(control[:used])
	if err != nil {
		return 0, err
	}
	for i := range messages {
		if messages[i].Header.Type == unix.SCM_CREDENTIALS {
			if r.from, err = unix.ParseUnixCredentials(&messages[i]); err != nil {
				return 0, err
			}
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return 0, err
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return n, nil
}

// checkPeer refuses who connected, if that is another user, or somebody in a sandbox.
func (c *conn) checkPeer() error {
	raw, err := c.file.SyscallConn()
	if err != nil {
		return err
	}
	var from *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		from, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	if err := checkUser(from); err != nil {
		return err
	}
	return peer.CheckFree(int(from.Pid))
}

// checkSender refuses what another user has sent, or a process in a user namespace
// of its own: what runs in a sandbox must not wait for what clients send.
func checkSender(from *unix.Ucred) error {
	if err := checkUser(from); err != nil {
		return err
	}
	return peer.CheckNamespace(int(from.Pid))
}

func checkUser(from *unix.Ucred) error {
	if int(from.Uid) != os.Geteuid() {
		return fmt.Errorf("the other end belongs to user %d", from.Uid)
	}
	return nil
}
