package config

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MessageType says what a Message is.
type MessageType string

const (
	// To the gate.

	// Reload replaces the Config. It holds for connections made from then on.
	Reload MessageType = "reload"
	// Answer answers a Question.
	Answer MessageType = "answer"

	// From the gate.

	// Ready says that every listener is served.
	Ready MessageType = "ready"
	// Reloaded answers Reload: the new Config holds, or Error says why the old
	// one still does.
	Reloaded MessageType = "reloaded"
	// Question asks whether a host may be reached. Connections to it wait for
	// the Answer, others do not.
	Question MessageType = "question"
	// Withdrawn says that nobody waits for the Answer any more.
	Withdrawn MessageType = "withdrawn"
)

// Decisions of an Answer. Whoever answers "always" writes the policy, and tells
// the gate ForRun.
const (
	Once       = "once"   // for the connections that wait
	ForRun     = "run"    // until the gate ends
	Refusing   = "refuse" // until the gate ends
	Unanswered = "none"   // nobody could be asked: refused for the connections that wait
)

// Message is one line on the control socket.
type Message struct {
	Type MessageType `json:"type"`

	Config *Config `json:"config,omitempty"` // of Reload
	Error  string  `json:"error,omitempty"`  // of Reloaded

	ID       uint64 `json:"id,omitempty"`   // of Question, Answer and Withdrawn
	Host     string `json:"host,omitempty"` // of Question
	Port     uint16 `json:"port,omitempty"` // of Question; 0 means those of the web
	Rule     *Rule  `json:"rule,omitempty"` // of Question: what asks; nil if it is the default action
	Pid      int    `json:"pid,omitempty"`  // of Question: the process that waits, if known
	Decision string `json:"decision,omitempty"`
}

// Conn exchanges messages. Send may be called by several goroutines at once,
// Receive by one.
type Conn struct {
	scanner *bufio.Scanner

	mu sync.Mutex // of w
	w  io.Writer
}

// NewConn exchanges messages over a stream.
func NewConn(rw io.ReadWriter) *Conn {
	s := bufio.NewScanner(rw)
	s.Buffer(nil, maxSize)
	return &Conn{scanner: s, w: rw}
}

// Send writes a message.
func (c *Conn) Send(m Message) error {
	if m.Config != nil {
		stamped := *m.Config
		stamped.Version = Version
		m.Config = &stamped
	}
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.w.Write(append(line, '\n'))
	return err
}

// Receive reads a message. At the end of the stream it returns io.EOF. After any
// other error but a *MessageError the stream cannot be read on.
func (c *Conn) Receive() (Message, error) {
	if !c.scanner.Scan() {
		if err := c.scanner.Err(); err != nil {
			return Message{}, err
		}
		return Message{}, io.EOF
	}
	var m Message
	if err := json.Unmarshal(c.scanner.Bytes(), &m); err != nil {
		return Message{}, &MessageError{m.Type, fmt.Errorf("not a message: %w", err)}
	}
	if err := m.check(); err != nil {
		return Message{}, &MessageError{m.Type, err}
	}
	return m, nil
}

// MessageError is about one message; the next can be received.
type MessageError struct {
	Type MessageType // if it could be read
	Err  error
}

func (e *MessageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the message.
func (e *MessageError) Unwrap() error { return e.Err }

func (m *Message) check() error {
	switch m.Type {
	case Reload:
		if m.Config == nil {
			return errors.New("a reload has no configuration")
		}
		return m.Config.checkVersion()
	case Answer:
		if d := m.Decision; d != Once && d != ForRun && d != Refusing && d != Unanswered {
			return fmt.Errorf("an answer cannot be %q", d)
		}
	case Ready, Reloaded, Question, Withdrawn:
	default:
		return fmt.Errorf("unknown message %q", m.Type)
	}
	return nil
}
