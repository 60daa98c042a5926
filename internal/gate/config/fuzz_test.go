package config

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// oneWay is a stream on which nothing is answered.
type oneWay struct {
	io.Reader
	io.Writer
}

// FuzzControlMessages reads lines as the gate and its starter do. A line is a
// message that survives being sent on, or it is named as bad, and then the next
// can still be read.
func FuzzControlMessages(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ready"}`, `{"type":"answer","id":7,"decision":"once"}`, `{"type":"question","id":1,"host":"a.example","port":443}`,
		`{"type":"reload","config":{"version":1,"default":"deny","rules":[{"host":"*","action":"allow","ports":[{"from":1,"to":2}]}]}}`,
		`{"type":"reload","config":null}`, `{"type":"reload","config":{"version":-1}}`, `{"type":"withdrawn","id":18446744073709551615}`,
		`{"type":"answer","decision":"maybe"}`, `{"type":1}`, "", "{}", "[]", `{"type":"ready"}{"type":"ready"}`, "\xff", `{"TYPE":"ready","type":"reload"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\r\n") {
			return // more than one line
		}
		c := NewConn(oneWay{strings.NewReader(string(line) + "\n" + `{"type":"ready"}` + "\n"), io.Discard})
		m, err := c.Receive()
		var bad *MessageError
		switch {
		case err == nil:
			checkSentOn(t, m)
		case !errors.As(err, &bad):
			t.Fatalf("%q ends the conversation: %v", line, err)
		}
		if next, err := c.Receive(); err != nil || next.Type != Ready {
			t.Errorf("after %q: got %+v, %v", line, next, err)
		}
	})
}

func checkSentOn(t *testing.T, m Message) {
	t.Helper()
	var b bytes.Buffer
	if err := NewConn(oneWay{strings.NewReader(""), &b}).Send(m); err != nil {
		t.Fatalf("%+v cannot be sent: %v", m, err)
	}
	if lines := bytes.Count(b.Bytes(), []byte("\n")); lines != 1 {
		t.Errorf("%+v takes %d lines", m, lines)
	}
	sent := b.String()
	again, err := NewConn(oneWay{&b, io.Discard}).Receive()
	if err != nil {
		t.Fatalf("%q cannot be received: %v", sent, err)
	}
	// Empty lists are not told from none, so what counts is what is sent.
	var second bytes.Buffer
	if err := NewConn(oneWay{strings.NewReader(""), &second}).Send(again); err != nil || second.String() != sent {
		t.Errorf("got %q, %v, want %q", second.String(), err, sent)
	}
	if m.Config == nil && !reflect.DeepEqual(m, again) {
		t.Errorf("got %+v, want %+v", again, m)
	}
}
