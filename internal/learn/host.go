package learn

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/tailscale/hujson"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Host is one that somebody, asked about it, allowed for good.
type Host struct {
	Name string
	Port uint16 // 0: the ports of the web
	// Rule is what asked, in the file that is to be changed; nil if that is the
	// default action.
	Rule *config.Rule
}

const sshPort = 22

// Allow adds the host to the text of a policy file, whose comments and layout
// stay as they are: to a list of hosts, or, if a rule asked, as a rule right
// before that one, so that nothing else comes to mean something else.
func (h Host) Allow(file string, data []byte) ([]byte, error) {
	return edit(file, data, func(top *hujson.Object) error {
		switch {
		case h.Rule != nil:
			return h.insertRule(file, data, top)
		case h.Port == 0:
			return h.appendTo(file, top, "network", "allowedDomains")
		case h.Port == sshPort:
			return h.appendTo(file, top, "ssh", "allowedHosts")
		}
		rules, err := listAt(file, top, "network", "rules")
		if err != nil {
			return err
		}
		value, err := h.rule()
		if err == nil {
			appendValue(rules, value, "")
		}
		return err
	})
}

func (h Host) appendTo(file string, top *hujson.Object, section, key string) error {
	hosts, err := listAt(file, top, section, key)
	if name := (hujson.Value{Value: hujson.String(h.Name)}); err == nil && !holds(hosts, name) {
		appendValue(hosts, name.Value, "")
	}
	return err
}

// rule allows the host what was asked about.
func (h Host) rule() (hujson.ValueTrimmed, error) {
	r := policy.NetworkRule{Host: h.Name, Action: "allow"}
	if h.Port != 0 {
		r.Ports = []string{strconv.Itoa(int(h.Port))}
	}
	if asked := h.Rule; asked != nil {
		r.Schemes, r.Methods, r.Paths = asked.Schemes, asked.Methods, asked.Paths
		if asked.Inspect {
			r.Inspect = &asked.Inspect
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	v, err := hujson.Parse(text)
	return v.Value, err
}

// insertRule finds the rule that asked by its place, which is the one thing that
// rules do not have in common.
func (h Host) insertRule(file string, data []byte, top *hujson.Object) error {
	rules, err := listAt(file, top, "network", "rules")
	if err != nil {
		return err
	}
	parsed, err := policy.Parse(file, data)
	if err != nil {
		return err
	}
	at := -1
	for i := range rules.Elements {
		if parsed.Origins[policy.Origin{Key: "network.rules", Entry: strconv.Itoa(i)}].String() == h.Rule.Where {
			at = i
		}
	}
	if at < 0 {
		return errors.New(file + ": the rule that asked is not there any more")
	}
	value, err := h.rule()
	if err != nil {
		return err
	}
	fresh := hujson.Value{BeforeExtra: hujson.Extra("\n" + elementIndent(rules)), Value: value}
	if len(bytes.TrimSpace(rules.Elements[at].BeforeExtra)) == 0 {
		rules.Elements[at].BeforeExtra = fresh.BeforeExtra
	}
	rules.Elements = slices.Insert(rules.Elements, at, fresh)
	return nil
}
