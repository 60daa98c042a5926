package limits

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// bus is a connection to a D-Bus, as far as it takes to ask systemd for a scope.
// Messages are little-endian, whatever the machine.
type bus struct {
	fd     int
	serial uint32
	unread []byte
}

// patience bounds each wait for an answer, in seconds.
const patience = 10

// dialBus connects, and introduces the caller by the user that the kernel vouches
// for.
func dialBus(socket string) (*bus, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	b := &bus{fd: fd}
	if err := b.begin(socket); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bus) begin(socket string) error {
	limit := unix.Timeval{Sec: patience}
	err := errors.Join(
		unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	if err != nil {
		return err
	}
	if err := unix.Connect(b.fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return err
	}
	uid := fmt.Sprintf("%x", strconv.Itoa(unix.Geteuid()))
	if err := b.write([]byte("\x00AUTH EXTERNAL " + uid + "\r\n")); err != nil {
		return err
	}
	line, err := b.line()
	if err != nil {
		return err
	}
	if len(line) < 3 || line[:3] != "OK " {
		return errors.New("it does not let this user in")
	}
	if err := b.write([]byte("BEGIN\r\n")); err != nil {
		return err
	}
	_, err = b.call(message{path: "/org/freedesktop/DBus", dest: busName, face: busName, member: "Hello"})
	return err
}

func (b *bus) close() { _ = unix.Close(b.fd) }

const (
	busName     = "org.freedesktop.DBus"
	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	managerFace = "org.freedesktop.systemd1.Manager"
)

// startScope has systemd put processes into a new scope that is delegated, and
// returns when they are there.
func (b *bus) startScope(unit string, pids []uint32) error {
	rule := "type='signal',sender='" + systemdName + "',interface='" + managerFace + "',member='JobRemoved'"
	if _, err := b.call(message{path: "/org/freedesktop/DBus", dest: busName, face: busName, member: "AddMatch", signature: "s", body: marshal(rule)}); err != nil {
		return err
	}
	manager := message{path: systemdPath, dest: systemdName, face: managerFace, member: "Subscribe"}
	if _, err := b.call(manager); err != nil {
		return err
	}
	manager.member, manager.signature = "StartTransientUnit", "ssa(sv)a(sa(sv))"
	manager.body = scopeRequest(unit, pids)
	reply, err := b.call(manager)
	if err != nil {
		return err
	}
	job, err := (&decoder{data: reply.body}).text()
	if err != nil {
		return err
	}
	return b.awaitJob(job)
}

// awaitJob waits for systemd to say that a job is done. Its arguments are the
// job's number, its path, the unit and the result.
func (b *bus) awaitJob(job string) error {
	for {
		m, err := b.next()
		if err != nil {
			return err
		}
		if m.kind != kindSignal || m.member != "JobRemoved" || m.signature != "uoss" {
			continue
		}
		d := &decoder{data: m.body}
		_, err = d.uint32()
		var texts [3]string
		for i := range texts {
			if err == nil {
				texts[i], err = d.text()
			}
		}
		if err != nil {
			return err
		}
		if texts[0] != job {
			continue
		}
		if texts[2] != "done" {
			return errors.New("the scope was not started: " + texts[2])
		}
		return nil
	}
}

// scopeRequest are the arguments of StartTransientUnit: the unit, what to do with
// others, properties, and further units.
func scopeRequest(unit string, pids []uint32) []byte {
	var e encoder
	e.text(unit)
	e.text("fail")
	e.array(8, func() {
		e.property("Description", "s", func() { e.text("Bailey sandboxes") })
		e.property("Delegate", "b", func() { e.uint32(1) })
		e.property("CollectMode", "s", func() { e.text("inactive-or-failed") })
		e.property("PIDs", "au", func() {
			e.array(4, func() {
				for _, pid := range pids {
					e.uint32(pid)
				}
			})
		})
	})
	e.array(8, func() {})
	return e.data
}

// message is a D-Bus message.
type message struct {
	kind                     byte
	path, dest, face, member string
	signature                string
	body                     []byte

	// Of an answer.
	replyTo uint32
	err     string
}

// Kinds of messages.
const (
	kindCall   = 1
	kindReturn = 2
	kindError  = 3
	kindSignal = 4
)

// Fields of a header.
const (
	fieldPath      = 1
	fieldInterface = 2
	fieldMember    = 3
	fieldError     = 4
	fieldReplyTo   = 5
	fieldDest      = 6
	fieldSignature = 8
)

// call sends a method call and returns its answer. Signals that come meanwhile
// are of others.
func (b *bus) call(m message) (*message, error) {
	b.serial++
	if err := b.write(m.encode(b.serial)); err != nil {
		return nil, err
	}
	for {
		answer, err := b.next()
		if err != nil {
			return nil, err
		}
		if answer.replyTo != b.serial {
			continue
		}
		switch answer.kind {
		case kindReturn:
			return answer, nil
		case kindError:
			text, _ := (&decoder{data: answer.body}).text() // it need not have one
			return nil, fmt.Errorf("%s: %s (%s)", m.member, text, answer.err)
		}
	}
}

// encode writes a method call: order, kind, flags, version, length of the body,
// serial number, fields.
func (m *message) encode(serial uint32) []byte {
	e := encoder{data: []byte{'l', kindCall, 0, 1}}
	e.uint32(uint32(len(m.body)))
	e.uint32(serial)
	e.array(8, func() {
		e.field(fieldPath, "o", m.path)
		e.field(fieldDest, "s", m.dest)
		e.field(fieldInterface, "s", m.face)
		e.field(fieldMember, "s", m.member)
		if m.signature != "" {
			e.align(8)
			e.data = append(e.data, fieldSignature)
			e.signature("g")
			e.signature(m.signature)
		}
	})
	e.align(8)
	return append(e.data, m.body...)
}

// next reads the next message, of whatever kind.
func (b *bus) next() (*message, error) {
	const fixed = 16
	head, err := b.read(fixed)
	if err != nil {
		return nil, err
	}
	if head[0] != 'l' {
		return nil, errMessage // daemons speak as they are spoken to, or as the machine
	}
	le := binary.LittleEndian
	body, fields := int(le.Uint32(head[4:])), int(le.Uint32(head[12:]))
	const most = 1 << 20
	if body > most || fields > most || body < 0 || fields < 0 {
		return nil, errMessage
	}
	padded := (fields + 7) &^ 7
	rest, err := b.read(padded + body)
	if err != nil {
		return nil, err
	}
	m := &message{kind: head[1], body: rest[padded:]}
	return m, m.readFields(rest[:fields])
}

func (m *message) readFields(data []byte) error {
	d := &decoder{data: data}
	for d.align(8); d.at < len(data); d.align(8) {
		code, err := d.byte()
		if err != nil {
			return err
		}
		kind, err := d.signature()
		if err != nil {
			return err
		}
		var text string
		var n uint32
		switch kind {
		case "s", "o":
			text, err = d.text()
		case "g":
			text, err = d.signature()
		case "u":
			n, err = d.uint32()
		default:
			err = errMessage
		}
		if err != nil {
			return err
		}
		switch code {
		case fieldMember:
			m.member = text
		case fieldError:
			m.err = text
		case fieldSignature:
			m.signature = text
		case fieldReplyTo:
			m.replyTo = n
		}
	}
	return nil
}

// line reads a line of the conversation before the messages.
func (b *bus) line() (string, error) {
	var line []byte
	for {
		c, err := b.read(1)
		if err != nil || len(line) > 512 {
			return "", errors.Join(err, errMessage)
		}
		if c[0] == '\n' {
			return string(line), nil
		}
		line = append(line, c[0])
	}
}

// read returns exactly n bytes.
func (b *bus) read(n int) ([]byte, error) {
	for len(b.unread) < n {
		buf := make([]byte, max(4096, n))
		got, err := unix.Read(b.fd, buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, errors.New("it does not answer")
		case err != nil:
			return nil, err
		case got == 0:
			return nil, errors.New("it hung up")
		}
		b.unread = append(b.unread, buf[:got]...)
	}
	out := b.unread[:n:n]
	b.unread = b.unread[n:]
	return out, nil
}

func (b *bus) write(data []byte) error {
	for len(data) > 0 {
		n, err := unix.SendmsgN(b.fd, data, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
