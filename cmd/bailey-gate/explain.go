package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// finding is what the command bailey prints for its other questions.
type finding struct {
	Subject string `json:"subject"`
	Allowed bool   `json:"allowed"`
	Verdict string `json:"verdict"`
	Rule    string `json:"rule,omitempty"`
	Where   string `json:"where,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// explain says what rules make of a host: bailey-gate explain [--json] --config FD
// HOST[:PORT].
func explain(args []string, stdout io.Writer) error {
	asJSON := len(args) > 0 && args[0] == "--json"
	if asJSON {
		args = args[1:]
	}
	if len(args) != 3 || args[0] != "--config" {
		return errors.New("explain is for bailey; try: bailey explain host NAME:PORT")
	}
	fd, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	var c config.Config
	if err := json.NewDecoder(io.NewSectionReader(os.NewFile(uintptr(fd), "config"), 0, 1<<30)).Decode(&c); err != nil {
		return err
	}
	f, err := findHost(&c, args[2])
	if err != nil {
		return err
	}
	return f.print(stdout, asJSON)
}

func findHost(c *config.Config, name string) (finding, error) {
	set, err := rules.Compile(c)
	if err != nil {
		return finding{}, err
	}
	host, port, err := hostname.ParseHostPort(name, 443)
	if err != nil {
		return finding{}, err
	}
	v := set.Foresee(rules.Query{Host: host, Port: port})
	f := finding{Subject: name, Allowed: v.Action != config.Deny, Verdict: verdict(v.Action), Rule: "no rule is about it: defaultAction"}
	if v.Rule != nil {
		f.Rule, f.Where = v.Rule.Name, v.Rule.Where
		f.Verdict += conditions(v.Rule)
	}
	if host.IsAddr() && set.GrantsAddr(host.Addr(), port) {
		f.Allowed, f.Verdict = true, verdict(config.Allow)
	}
	if !f.Allowed && v.Rule == nil {
		f.Fix = fmt.Sprintf(`in a policy: "network": {"allowedDomains": [%q]}`, strings.TrimSuffix(name, ":"+strconv.Itoa(int(port))))
	}
	return f, nil
}

func verdict(a config.Action) string {
	switch a {
	case config.Allow:
		return "can be reached"
	case config.Ask:
		return "can be reached if a person says so when asked"
	case config.Deny:
		return "cannot be reached"
	}
	return "is left to the proxy outside"
}

// conditions are what else a rule wants.
func conditions(r *config.Rule) string {
	if r.Action == config.Deny {
		return ""
	}
	var parts []string
	for _, p := range []struct {
		name  string
		words []string
	}{{"protocol", r.Schemes}, {"method", r.Methods}, {"path", r.Paths}} {
		if len(p.words) > 0 {
			parts = append(parts, p.name+" "+strings.Join(p.words, " or "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ", by " + strings.Join(parts, ", ")
}

func (f *finding) print(stdout io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(stdout)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(f)
	}
	text := plain.Text(f.Subject) + " " + plain.Text(f.Verdict) + "\n  by  " + plain.Text(f.Rule)
	if f.Where != "" {
		text += "\n  at  " + plain.Text(f.Where)
	}
	if f.Fix != "" {
		text += "\n  to change it: " + plain.Text(f.Fix)
	}
	_, err := io.WriteString(stdout, text+"\n")
	return err
}
