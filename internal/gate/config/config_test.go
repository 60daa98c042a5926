package config

import (
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

func full() Config {
	return Config{
		Version: Version, Sandbox: "b7", Process: 7, Default: Ask, CanAsk: true,
		Rules: []Rule{{
			Host: "*.example.com", Ports: []Ports{{80, 80}, {8000, 8100}}, Schemes: []string{"https"}, Methods: []string{"GET"},
			Paths: []string{"/v1/**"}, Action: Allow, Inspect: true, Name: "network.rules[0]", Where: "bailey.jsonc:3:4",
		}},
		Ranges:       []Range{{CIDR: "10.0.0.0/8", Where: "bailey.jsonc:9:1"}},
		Inject:       []Injection{{Hosts: []string{"a.com"}, As: InHeader, Name: "X-Key", Format: "k {}", FromCommand: []string{"pass", "show"}}},
		Upstream:     Upstream{HTTP: "http://p:1", HTTPS: "https://p:2", All: "socks5://p:3", NoProxy: "a.com"},
		Limits:       Limits{Connections: 1, HeaderBytes: 2, Idle: time.Second, Total: time.Minute, Bandwidth: 5},
		AuthorityDir: "/a", Nameservers: []string{"192.0.2.1:53"},
	}
}

func TestConfigSurvivesTheTransfer(t *testing.T) {
	var b bytes.Buffer
	want := full()
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestConfigOfAnotherReleaseIsRefused(t *testing.T) {
	for _, text := range []string{`{}`, `{"version":2}`, `{"version":1,"rules":{}}`, ``, `[`} {
		if c, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: got %+v", text, c)
		}
	}
}

func TestAuthorityIsNeededWhereTLSIsOpened(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   bool
	}{
		{Config{}, false},
		{Config{Rules: []Rule{{Host: "a.com"}}}, false},
		{Config{Rules: []Rule{{Host: "a.com"}, {Host: "b.com", Inspect: true}}}, true},
		{Config{Inject: []Injection{{}}}, true},
	} {
		if got := c.config.NeedsAuthority(); got != c.want {
			t.Errorf("%+v: got %v", c.config, got)
		}
	}
}

func TestMessagesCrossASocket(t *testing.T) {
	a, b := net.Pipe()
	from, to := NewConn(a), NewConn(b)
	config := full()
	want := []Message{
		{Type: Reload, Config: &config},
		{Type: Question, ID: 7, Host: "a.com", Port: 443, Rule: &config.Rules[0], Pid: 12},
		{Type: Answer, ID: 7, Decision: ForRun},
		{Type: Reloaded, Error: "bad\nline"},
	}
	go func() {
		for _, m := range want {
			_ = from.Send(m)
		}
		a.Close()
	}()
	for _, w := range want {
		got, err := to.Receive()
		if err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("got %+v, %v, want %+v", got, err, w)
		}
	}
	if _, err := to.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestBadMessageIsNamedAndPassedOver(t *testing.T) {
	lines := `{"type":"nonsense"}
{"type":"reload"}
{"type":"reload","config":{"version":99}}
{"type":"answer","id":1,"decision":"maybe"}
not json
{"type":"ready"}
`
	c := NewConn(struct {
		io.Reader
		io.Writer
	}{strings.NewReader(lines), io.Discard})
	for range 5 {
		var bad *MessageError
		if m, err := c.Receive(); !errors.As(err, &bad) {
			t.Errorf("got %+v, %v", m, err)
		}
	}
	if m, err := c.Receive(); err != nil || m.Type != Ready {
		t.Errorf("got %+v, %v", m, err)
	}
}
