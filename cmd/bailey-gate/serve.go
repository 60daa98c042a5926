package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/inside"
)

// descriptors are what serve inherits.
type descriptors struct {
	config, events, control int
	listeners               []listener
	exposed                 []exposed
	inside                  [][2]int // see package inside
}

type listener struct {
	role config.Role
	fd   int
}

// exposed is a listener outside for a port inside.
type exposed struct {
	port uint16
	fd   int
}

// serve runs a gate until the other end of the control socket is closed.
func serve(args []string) error {
	d, err := parseDescriptors(args)
	if err != nil {
		return err
	}
	// Ctrl-C is for the command in the sandbox: the gate goes when its starter
	// does.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	shield()
	// What a gate holds is mostly sockets; the collector need not wait for more.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(24 << 20)

	c, err := readConfig(d.config)
	if err != nil {
		return err
	}
	adopt(c.Environ)
	control, err := connOf(d.control)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer control.Close()
	syscall.CloseOnExec(d.events)
	events := os.NewFile(uintptr(d.events), "events")
	defer events.Close()

	messages := config.NewConn(control)
	g, err := gate.New(gate.Options{Config: c, Events: event.NewWriter(events), Control: messages, Peers: d.takePeers()})
	if err != nil {
		return err
	}
	defer g.Close()
	failed, err := listen(g, d)
	if err != nil {
		return err
	}
	if err := messages.Send(config.Message{Type: config.Ready}); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- converse(g, messages) }()
	select {
	case err := <-failed:
		return err
	case err := <-ended:
		return err
	}
}

// converse takes messages until the other end is closed.
func converse(g *gate.Gate, c *config.Conn) error {
	for {
		m, err := c.Receive()
		var bad *config.MessageError
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
			return nil
		case errors.As(err, &bad):
			if bad.Type != config.Reload {
				continue // from another release; it waits for no answer
			}
			m.Type = config.Reload
		case err != nil:
			return fmt.Errorf("control: %w", err)
		}
		switch m.Type {
		case config.Answer:
			g.Answer(m)
		case config.Reload:
			answer := config.Message{Type: config.Reloaded}
			if err == nil {
				err = g.Reload(*m.Config)
			}
			if err != nil {
				answer.Error = err.Error()
			} else {
				adopt(m.Config.Environ)
			}
			if err := c.Send(answer); err != nil {
				return fmt.Errorf("control: %w", err)
			}
		}
	}
}

// adopt takes an environment over, if there is one to be taken: who starts a gate
// may not have what those have for whom it is started.
func adopt(environ []string) {
	if environ == nil {
		return
	}
	os.Clearenv()
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			_ = os.Setenv(name, value) // a name that cannot be set is none that could be asked for
		}
	}
}

// listen serves every listener. A failure of one is sent to the channel.
func listen(g *gate.Gate, d descriptors) (<-chan error, error) {
	failed := make(chan error, len(d.listeners)+len(d.exposed))
	start := func(name string, serve func() error) {
		go func() {
			if err := serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}
	for _, l := range d.listeners {
		serve, err := open(g, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.role, err)
		}
		start(string(l.role), serve)
	}
	return failed, expose(g, d, start)
}

// expose leads connections from outside in.
func expose(g *gate.Gate, d descriptors, start func(name string, serve func() error)) error {
	var dialer inside.Dialer
	for _, pair := range d.inside {
		if err := dialer.Add(pair[0], pair[1]); err != nil {
			return fmt.Errorf("inside: %w", err)
		}
	}
	for _, e := range d.exposed {
		l, err := listenerOf(e.fd)
		if err != nil {
			return fmt.Errorf("port %d: %w", e.port, err)
		}
		start("port "+strconv.Itoa(int(e.port)), func() error { return g.Expose(l, e.port, dialer.Dial) })
	}
	return nil
}

func listenerOf(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close() // package net keeps a descriptor of its own
	return net.FileListener(f)
}

// open takes one inherited socket over.
func open(g *gate.Gate, l listener) (serve func() error, err error) {
	f, err := fileOf(l)
	if err != nil {
		return nil, err
	}
	if l.role == config.RoleRejected {
		return func() error { return g.ServeRejected(f) }, nil
	}
	defer f.Close() // package net keeps a descriptor of its own
	if l.role == config.RoleHanded {
		return handed(g, f)
	}
	if l.role != config.RoleDNSUDP {
		listener, err := net.FileListener(f)
		if err != nil {
			return nil, err
		}
		return func() error { return g.Serve(l.role, listener) }, nil
	}
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	packets, ok := c.(*net.UDPConn)
	if !ok {
		return nil, errors.New("not a socket of UDP")
	}
	return func() error { return g.ServePacket(packets) }, nil
}

// handed takes over a socket by which connections are handed over.
func handed(g *gate.Gate, f *os.File) (serve func() error, err error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	packets, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	return func() error { return g.ServeHanded(packets) }, nil
}

// fileOf is an inherited socket that the runtime can wait for.
func fileOf(l listener) (*os.File, error) {
	syscall.CloseOnExec(l.fd)
	if err := syscall.SetNonblock(l.fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(l.fd), string(l.role)), nil
}

// takePeers takes the socket that tells whose connections are whose out of the
// list; nil if there is none.
func (d *descriptors) takePeers() (f *os.File) {
	d.listeners = slices.DeleteFunc(d.listeners, func(l listener) bool {
		if l.role != config.RolePeers {
			return false
		}
		syscall.CloseOnExec(l.fd)
		f = os.NewFile(uintptr(l.fd), string(l.role))
		return true
	})
	return f
}

func readConfig(fd int) (config.Config, error) {
	f := os.NewFile(uintptr(fd), "config")
	defer f.Close()
	return config.Read(f)
}

func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "control")
	defer f.Close()
	return net.FileConn(f)
}

func parseDescriptors(args []string) (descriptors, error) {
	d := descriptors{config: -1, events: -1, control: -1}
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return d, fmt.Errorf("%s wants a descriptor", args[i])
		}
		var err error
		switch value := args[i+1]; args[i] {
		case "--config":
			d.config, err = parseDescriptor(value)
		case "--events":
			d.events, err = parseDescriptor(value)
		case "--control":
			d.control, err = parseDescriptor(value)
		case "--listen":
			err = d.addListener(value)
		case "--expose":
			err = d.addExposed(value)
		case "--inside":
			err = d.addInside(value)
		default:
			err = fmt.Errorf("unknown flag %s", args[i])
		}
		if err != nil {
			return d, err
		}
	}
	if d.config < 0 || d.events < 0 || d.control < 0 || len(d.listeners)+len(d.exposed) == 0 {
		return d, errors.New("serve wants --config, --events, --control and at least one --listen or --expose; it is started by bailey")
	}
	return d, nil
}

func (d *descriptors) addListener(text string) error {
	name, number, _ := strings.Cut(text, "=")
	fd, err := parseDescriptor(number)
	if err != nil {
		return err
	}
	for _, role := range config.Roles() {
		if string(role) == name {
			d.listeners = append(d.listeners, listener{role, fd})
			return nil
		}
	}
	return fmt.Errorf("unknown role %q", name)
}

func (d *descriptors) addExposed(text string) error {
	port, number, _ := strings.Cut(text, "=")
	fd, err := parseDescriptor(number)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is no port", port)
	}
	d.exposed = append(d.exposed, exposed{uint16(n), fd})
	return nil
}

func (d *descriptors) addInside(text string) error {
	mint, seed, _ := strings.Cut(text, "=")
	var pair [2]int
	for i, number := range []string{mint, seed} {
		fd, err := parseDescriptor(number)
		if err != nil {
			return err
		}
		pair[i] = fd
	}
	d.inside = append(d.inside, pair)
	return nil
}

// parseDescriptor leaves the standard streams alone.
func parseDescriptor(text string) (int, error) {
	const first = 3
	fd, err := strconv.Atoi(text)
	if err != nil || fd < first {
		return -1, fmt.Errorf("%q is no descriptor", text)
	}
	return fd, nil
}
