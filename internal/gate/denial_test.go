package gate

import (
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

// What a denial advises lets through what was denied, and nothing besides.
func TestAdviceIsTheSmallestThatHelps(t *testing.T) {
	w := newWorld(t, allowed)
	ask := func(port uint16, scheme rules.Scheme, method, path string) rules.Query {
		q := rules.Query{Host: must(hostname.Parse("a.example")), Port: port, Scheme: scheme, Method: method}
		if path != "" {
			q.Path = must(rules.NewPath(path))
		}
		return q
	}
	inspected := `"rules": [{"host": "a.example", "methods": ["GET"], "paths": ["/ok/**"], "inspect": true, "action": "allow"}]`
	for name, c := range map[string]struct {
		network string
		asked   rules.Query
		want    string
		not     rules.Query // what the advice must not let through
	}{
		"a path in TLS": {
			inspected, ask(443, rules.HTTPS, "GET", "/no"),
			`network.rules: {"host": "a.example", "ports": ["443"], "schemes": ["https"], "methods": ["GET"], "paths": ["/no"], "inspect": true, "action": "allow"}`,
			ask(443, rules.HTTPS, "GET", "/other"),
		},
		"a method": {
			inspected, ask(80, rules.HTTP, "POST", "/ok/x%20y"),
			`network.rules: {"host": "a.example", "ports": ["80"], "schemes": ["http"], "methods": ["POST"], "paths": ["/ok/x%20y"], "action": "allow"}`,
			ask(80, rules.HTTP, "POST", "/ok/x"),
		},
		"a path that nothing can allow": {inspected, ask(443, rules.HTTPS, "GET", "/ok/../no"), "", rules.Query{}},
		"who would ask": {
			`"defaultAction": "ask"`, ask(80, rules.HTTP, "GET", "/"), `network.allowedDomains: "a.example"`, ask(81, rules.HTTP, "GET", "/"),
		},
	} {
		policy := func(network string) *rules.Set {
			told := w.translate(`{"network": {` + network + `}}`)
			return must(rules.Compile(&told))
		}
		set := policy(c.network)
		got := explain(set, c.asked, set.Decide(c.asked)).fix
		if got != c.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, c.want)
		}
		if c.want == "" {
			continue
		}
		key, entry, _ := strings.Cut(strings.TrimPrefix(got, "network."), ": ")
		advised := policy(strconv.Quote(key) + ": [" + entry + "]")
		if v := advised.Decide(c.asked); v.Action != config.Allow {
			t.Errorf("%s: the advice does not help: %+v", name, v)
		}
		if v := advised.Decide(c.not); v.Action == config.Allow {
			t.Errorf("%s: the advice lets too much through: %+v", name, v)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
