package gate

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/head"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// credential is added to requests for some hosts. Its value is read when it is
// needed, and is in nothing that anybody prints: no error here repeats what a
// file, a variable or a program said.
type credential struct {
	config.Injection
	hosts  *rules.Set
	getenv func(string) string

	mu      sync.Mutex
	value   string
	expires time.Time
}

const (
	// keepCredential is how long the output of a program is used.
	keepCredential = 5 * time.Minute
	credentialTime = 30 * time.Second
	maxCredential  = 16 << 10
)

func newCredentials(list []config.Injection, getenv func(string) string) ([]*credential, error) {
	var out []*credential
	for i, injection := range list {
		c := config.Config{Default: config.Deny}
		for _, host := range injection.Hosts {
			c.Rules = append(c.Rules, config.Rule{Host: host, Action: config.Allow, Name: fmt.Sprintf("network.inject[%d]", i)})
		}
		hosts, err := rules.Compile(&c)
		if err != nil {
			return nil, err
		}
		out = append(out, &credential{Injection: injection, hosts: hosts, getenv: getenv})
	}
	return out, nil
}

func (c *credential) isFor(host hostname.Host) bool {
	return c.hosts.Decide(rules.Query{Host: host}).Action == config.Allow
}

// injects says whether requests to a host get a credential.
func (s *state) injects(host hostname.Host) bool {
	for _, c := range s.inject {
		if c.isFor(host) {
			return true
		}
	}
	return false
}

// read returns the value.
func (c *credential) read(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.value != "" && time.Now().Before(c.expires) {
		return c.value, nil
	}
	var value string
	var err error
	switch {
	case c.FromEnv != "":
		value = c.getenv(c.FromEnv)
	case c.FromFile != "":
		value, err = readCredential(c.FromFile)
	default:
		value, err = runCredential(ctx, c.FromCommand)
		c.expires = time.Now().Add(keepCredential)
	}
	value = strings.TrimRight(value, "\r\n")
	switch {
	case err != nil:
		return "", err
	case value == "":
		return "", errors.New("it is empty")
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", errors.New("it has more than one line, or control characters")
	}
	c.value = value
	return value, nil
}

func readCredential(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", errors.New("its file cannot be opened")
	}
	defer f.Close()
	b := make([]byte, maxCredential)
	n, err := f.Read(b)
	if err != nil {
		return "", errors.New("its file cannot be read")
	}
	return string(b[:n]), nil
}

func runCredential(ctx context.Context, argv []string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("it has no source")
	}
	ctx, cancel := context.WithTimeout(ctx, credentialTime)
	defer cancel()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	command.Stdout = &limitedBuffer{&out}
	if err := command.Run(); err != nil {
		return "", errors.New("its program failed")
	}
	return out.String(), nil
}

// limitedBuffer fails when a program says too much.
type limitedBuffer struct{ *bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxCredential {
		return 0, errors.New("too much output")
	}
	return b.Buffer.Write(p)
}

// addCredentials puts credentials into a request in the place of whatever the
// client sent there.
func (h *exchange) addCredentials(r *request, fields head.Fields) (head.Fields, error) {
	for _, c := range h.inject {
		if !c.isFor(r.to.Host) {
			continue
		}
		value, err := h.credential(c, r.Method)
		if err != nil {
			return nil, err
		}
		if c.As == config.InQuery {
			r.local = withParameter(r.local, c.Name, value)
			continue
		}
		name, text := c.header(value)
		fields = append(fields.Without(func(n string) bool { return strings.EqualFold(n, name) }), head.Field{Name: name, Value: text})
	}
	return fields, nil
}

// credential reads a credential for a request.
func (s *session) credential(c *credential, method string) (string, error) {
	if method == http.MethodTrace || strings.EqualFold(method, "TRACK") {
		return "", &head.Error{Status: http.StatusMethodNotAllowed, Text: "TRACE would show the credential that is added to this request"}
	}
	value, err := c.read(s.ctx)
	if err != nil {
		return "", fmt.Errorf("the credential for this host cannot be had: %w", err)
	}
	return value, nil
}

// header is the field that carries the value.
func (c *credential) header(value string) (name, text string) {
	if c.As == config.InBasic {
		return "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Name+":"+value))
	}
	return c.Name, strings.Replace(c.Format, "{}", value, 1)
}

// withParameter sets a parameter of a query.
func withParameter(local, name, value string) string {
	path, query, _ := strings.Cut(local, "?")
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if decoded, err := url.QueryUnescape(key); part != "" && (err != nil || decoded != name) {
			kept = append(kept, part)
		}
	}
	kept = append(kept, url.QueryEscape(name)+"="+url.QueryEscape(value))
	return path + "?" + strings.Join(kept, "&")
}
