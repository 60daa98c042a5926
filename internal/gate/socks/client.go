package socks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
)

// Connect asks a proxy of version 5, to which rw leads, for a connection. With a
// user it authenticates if the proxy wants that. Afterwards rw is the
// connection.
func Connect(rw io.ReadWriter, host hostname.Host, port uint16, user, password string) error {
	if err := authenticate(rw, user, password); err != nil {
		return err
	}
	request := []byte{version5, commandConnect, 0}
	switch {
	case !host.IsAddr():
		request = append(request, addressName, byte(len(host.Name())))
		request = append(request, host.Name()...)
	case host.Addr().Is4():
		request = append(append(request, addressIPv4), host.Addr().AsSlice()...)
	default:
		request = append(append(request, addressIPv6), host.Addr().AsSlice()...)
	}
	if _, err := rw.Write(binary.BigEndian.AppendUint16(request, port)); err != nil {
		return err
	}
	return readReply(rw)
}

func authenticate(rw io.ReadWriter, user, password string) error {
	offer := []byte{version5, 1, methodNone}
	if user != "" {
		offer = []byte{version5, 2, methodNone, methodPassword}
	}
	if _, err := rw.Write(offer); err != nil {
		return err
	}
	var choice [2]byte
	if _, err := io.ReadFull(rw, choice[:]); err != nil {
		return err
	}
	switch {
	case choice == [2]byte{version5, methodNone}:
		return nil
	case choice == [2]byte{version5, methodPassword} && user != "":
		return sendPassword(rw, user, password)
	}
	return errors.New("the SOCKS proxy wants another way of authentication")
}

func sendPassword(rw io.ReadWriter, user, password string) error {
	const subnegotiation = 1
	if len(user) > maxText || len(password) > maxText {
		return errors.New("the user or the password for the SOCKS proxy is too long")
	}
	message := append([]byte{subnegotiation, byte(len(user))}, user...)
	message = append(append(message, byte(len(password))), password...)
	if _, err := rw.Write(message); err != nil {
		return err
	}
	var status [2]byte
	if _, err := io.ReadFull(rw, status[:]); err != nil {
		return err
	}
	if status[1] != 0 {
		return errors.New("the SOCKS proxy does not take the user and the password")
	}
	return nil
}

func readReply(r io.Reader) error {
	var head [5]byte // and the first byte of the address
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if head[0] != version5 {
		return errors.New("the SOCKS proxy answers in another protocol")
	}
	const port = 2
	rest := port
	switch head[3] {
	case addressIPv4:
		rest += 4 - 1
	case addressIPv6:
		rest += 16 - 1
	case addressName:
		rest += int(head[4])
	default:
		return errors.New("the SOCKS proxy answers with an unknown kind of address")
	}
	if _, err := io.CopyN(io.Discard, r, int64(rest)); err != nil {
		return err
	}
	if reply := Reply(head[1]); reply != Succeeded {
		return &Error{reply, fmt.Errorf("the proxy answers with error %d", reply)}
	}
	return nil
}
