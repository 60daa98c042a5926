package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/address"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/finding"
	"github.com/bailey-sandbox/bailey/internal/gate/hostname"
	"github.com/bailey-sandbox/bailey/internal/gate/rules"
)

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
	text, err := f.Format(asJSON)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, text)
	return err
}

func findHost(c *config.Config, name string) (finding.Finding, error) {
	set, err := rules.Compile(c)
	if err != nil {
		return finding.Finding{}, err
	}
	host, port, err := hostname.ParseHostPort(name, 443)
	if err != nil {
		return finding.Finding{}, err
	}
	bare, named := strings.CutSuffix(name, ":"+strconv.Itoa(int(port)))
	if host.Name() == "localhost" {
		host = loopback
	}
	v := set.Foresee(rules.Query{Host: host, Port: port})
	f := finding.Finding{Subject: name, Allowed: v.Action != config.Deny, Verdict: verdict(v.Action), Rule: "no rule is about it: defaultAction"}
	if v.Rule != nil {
		f.Rule, f.Where = v.Rule.Name, v.Rule.Where
		f.Verdict += conditions(v.Rule)
	}
	switch {
	case f.Allowed:
	case v.Rule == nil:
		f.Fix = finding.GrantOf(bare, portIf(named, port))
	case isGranted(c, host, port):
		f.Fix = finding.TakeBack(v.Rule.Name, v.Rule.Where)
	default:
		f.Fix = finding.TakeBackAndGrant(v.Rule.Name, v.Rule.Where, finding.GrantOf(bare, portIf(named, port)))
	}
	if f.Allowed && host.IsAddr() && host.Addr().IsLoopback() && strings.HasPrefix(f.Rule, "network.allowedCIDRs ") {
		exceptLoopback(&f, bare, portIf(named, port))
	}
	if f.Allowed && host.IsAddr() && !set.GrantsAddr(host.Addr(), port) {
		exceptSpecial(&f, host.Addr(), bare, portIf(named, port))
	}
	return f, nil
}

// isGranted says whether a host could be reached but for what denies it.
func isGranted(c *config.Config, host hostname.Host, port uint16) bool {
	granting := *c
	granting.Rules = slices.DeleteFunc(slices.Clone(c.Rules), func(r config.Rule) bool { return r.Action == config.Deny })
	set, err := rules.Compile(&granting)
	return err == nil && set.Foresee(rules.Query{Host: host, Port: port}).Action != config.Deny
}

// exceptLoopback says that an address of loopback is the sandbox's own where only a range
// grants it: it is for names, and for who asks the proxy.
func exceptLoopback(f *finding.Finding, name, port string) {
	f.Allowed, f.Verdict = false, "is the sandbox's own; the host's is reached by granted names and by the proxy only"
	f.Fix = finding.GrantOf(name, port)
}

// exceptSpecial takes back what grants an address only as a part of everything, if
// that is not meant to reach it.
func exceptSpecial(f *finding.Finding, addr netip.Addr, name, port string) {
	what := address.Special(addr)
	if what == "" {
		return
	}
	f.Allowed, f.Verdict = false, verdict(config.Deny)
	f.Rule, f.Where = "the address is "+what+", which has to be granted by itself", ""
	f.Fix = fmt.Sprintf(`in a policy: "network": {"allowedCIDRs": [%q]}`, addr.String())
	if addr.IsLoopback() {
		f.Fix = finding.GrantOf(name, port)
	}
}

func portIf(named bool, port uint16) string {
	if !named {
		return ""
	}
	return strconv.Itoa(int(port))
}

// loopback is where localhost is inside.
var loopback, _ = hostname.FromAddr(netip.AddrFrom4([4]byte{127, 0, 0, 1}))

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
