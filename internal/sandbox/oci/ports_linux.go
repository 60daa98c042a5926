package oci

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// PortsOf is what the ports to a Spec's gate are made by, or nil if there are none.
func PortsOf(s *spec.Spec) *spec.Spec {
	if !s.NeedsGate() || gateSocket(s) != "" {
		return nil
	}
	p := &spec.Spec{Expose: s.Expose, Inlet: s.Inlet}
	if s.Gate != nil {
		gate := *s.Gate
		gate.Config = config.Config{} // which may hold secrets
		p.Gate = &gate
	}
	return p
}

// OpenPorts makes the ports of the network gate in the network of a process, of which it is
// given a descriptor. See PortsOf.
func OpenPorts(pidfd int, ports *spec.Spec) (list []native.Listener, err error) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Setns(pidfd, unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter the sandbox's network: %w", err)
			return
		}
		list, err = native.OpenGate(ports)
	}()
	<-made
	return list, err
}

// maxPorts is more than there are of one sandbox.
const maxPorts = 16

// PortsSpace is how much room the descriptors of ports take in a message.
var PortsSpace = unix.CmsgSpace(4 * maxPorts)

// HandPorts is the form in which ports go to another process.
func HandPorts(list []native.Listener) (roles string, rights []byte) {
	var names []string
	var fds []int
	for _, l := range list {
		names, fds = append(names, string(l.Role)), append(fds, int(l.File.Fd()))
	}
	return strings.Join(names, " "), unix.UnixRights(fds...)
}

// TakePorts are the ports that came in that form.
func TakePorts(roles string, fds []int) (list []native.Listener) {
	for i, role := range strings.Fields(roles) {
		list = append(list, native.Listener{Role: config.Role(role), File: os.NewFile(uintptr(fds[i]), role)})
	}
	return list
}

func closePorts(list []native.Listener) {
	for _, l := range list {
		_ = l.File.Close()
	}
}
