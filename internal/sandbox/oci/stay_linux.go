package oci

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// A sandbox can stay and take any number of commands. Its first process is then that of the
// native runtime's resident sandboxes, which starts them with the streams that come with
// each request. It does so inside, so every command is behind the walls of the bundle, and
// the runtime is not asked again. What commands of other sandboxes put up around themselves,
// Landlock and the filter that asks a broker, is not there: what only these hold is refused.

// bareSuffix follows the name of a runtime whose commands put up no walls of their own.
const bareSuffix = " (bare)"

// bareName is what a runtime is called in a sandbox that stays.
func bareName(runtime string) string {
	if !HasWalls(runtime) {
		return runtime
	}
	return runtime + bareSuffix
}

// RefusesToStay names the parts of a Spec that cannot be held in a sandbox that stays.
func (e *Engine) RefusesToStay(s *spec.Spec) error {
	if _, err := e.find(); err != nil {
		return err
	}
	bare := *s
	bare.Runtime = bareName(e.name)
	r := &refusal{name: e.name, spec: &bare, second: e.name == Gvisor, bare: true}
	return engine.Refused(r.all())
}

// Open builds a sandbox that stays, by the runtime that the Spec names.
func (n *Nursery) Open(s *spec.Spec) (*native.Resident, error) {
	e := engineOf(s.Runtime)
	if e == nil {
		return nil, errors.New("runtime " + s.Runtime + ": has no sandboxes that stay")
	}
	if err := e.RefusesToStay(s); err != nil {
		return nil, err
	}
	program, err := e.find()
	if err != nil {
		return nil, err
	}
	serial := n.serial.Add(1)
	c := &command{group: groupName(s), control: -1, pidfd: -1, stays: true}
	if c.group != "" {
		c.group += "-" + strconv.FormatUint(uint64(serial), 10)
	}
	id := identityIn(s.Identity, firstWaiting+serial%(rangeCount-firstWaiting))
	bare := *s
	bare.Runtime = bareName(s.Runtime)
	r, err := c.stay(n, &bare, e.order(s, program), id)
	if err != nil {
		c.finish()
		_ = c.gate.Close() // which may not be there
		closePorts(c.ports)
		return nil, err
	}
	return r, nil
}

// stay builds a sandbox up to where its first process waits for commands.
func (c *command) stay(n *Nursery, s *spec.Spec, r runtimeOrder, id Identity) (*native.Resident, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	c.streams.inner, c.streams.stream = [3]*os.File{null, null, null}, -1
	o := optionsOf(s, s.Runtime, id)
	o.Stream, o.Cgroup, o.Stays, o.Umask = -1, c.group, true, uint32(Umask())
	var orders *os.File
	spawned := make(chan struct{})
	n.jobs <- func() {
		defer close(spawned)
		orders, err = c.spawn(s.Identity, id)
	}
	<-spawned
	if err != nil {
		return nil, err
	}
	err = instruct(orders, s, o, r)
	_ = orders.Close()
	if err == nil {
		err = c.begin(start{gated: gateSocket(s) != "", linked: LinksOf(s) != nil, ported: PortsOf(s) != nil})
	}
	if err != nil {
		return nil, err
	}
	return c.welcome(s, r, id, int(o.Umask))
}

// welcome hands the sandbox over to who gives it commands. It ends with its guard, which
// ends with this process.
func (c *command) welcome(s *spec.Spec, r runtimeOrder, id Identity, umask int) (*native.Resident, error) {
	guest := native.Guest{
		Pid: c.process, Guard: c.guard, Control: c.status, Listeners: c.Listeners(), Umask: umask,
		Root: "/proc/" + strconv.Itoa(c.process) + "/root", Terminals: true,
	}
	if id.Count > 1 {
		guest.Owner = id.First + id.UID
	}
	if r.Name == Gvisor {
		// Terminals and memory file systems are in its own kernel, where nobody outside
		// finds them.
		guest.Root, guest.Partial = "/proc/"+strconv.Itoa(c.guard)+"/root"+stage+"/"+seenName, true
		guest.Terminals = false
	}
	resident, err := native.Welcome(s, guest)
	if err != nil {
		return nil, err
	}
	resident.AtEnd(func() {
		_ = unix.Close(c.control)
		removeGroup(c.group)
	})
	return resident, nil
}

// processOf is the number of the process that a descriptor is of:
//
//	Pid:	4711
func processOf(pidfd *os.File) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(pidfd.Fd())))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nPid:\t")
	number, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return 0, fmt.Errorf("the sandbox's first process has ended")
	}
	return pid, nil
}
