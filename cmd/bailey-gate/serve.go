package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
)

// descriptors are what serve inherits.
type descriptors struct {
	config, events, control int
	listeners               []listener
}

type listener struct {
	role config.Role
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
	control, err := connOf(d.control)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer control.Close()
	syscall.CloseOnExec(d.events)
	events := os.NewFile(uintptr(d.events), "events")
	defer events.Close()

	messages := config.NewConn(control)
	g, err := gate.New(gate.Options{Config: c, Events: event.NewWriter(events), Control: messages})
	if err != nil {
		return err
	}
	defer g.Close()
	failed, err := listen(g, d.listeners)
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
			}
			if err := c.Send(answer); err != nil {
				return fmt.Errorf("control: %w", err)
			}
		}
	}
}

// listen serves every listener. A failure of one is sent to the channel.
func listen(g *gate.Gate, list []listener) (<-chan error, error) {
	failed := make(chan error, len(list))
	for _, l := range list {
		serve, err := open(g, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.role, err)
		}
		go func() {
			if err := serve(); err != nil {
				failed <- fmt.Errorf("%s: %w", l.role, err)
			}
		}()
	}
	return failed, nil
}

// open takes one inherited socket over.
func open(g *gate.Gate, l listener) (serve func() error, err error) {
	f := os.NewFile(uintptr(l.fd), string(l.role))
	defer f.Close() // package net keeps a descriptor of its own
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
		default:
			err = fmt.Errorf("unknown flag %s", args[i])
		}
		if err != nil {
			return d, err
		}
	}
	if d.config < 0 || d.events < 0 || d.control < 0 || len(d.listeners) == 0 {
		return d, errors.New("serve wants --config, --events, --control and at least one --listen; it is started by bailey")
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

// parseDescriptor leaves the standard streams alone.
func parseDescriptor(text string) (int, error) {
	const first = 3
	fd, err := strconv.Atoi(text)
	if err != nil || fd < first {
		return -1, fmt.Errorf("%q is no descriptor", text)
	}
	return fd, nil
}
