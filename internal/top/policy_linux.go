package top

import (
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// inShort is a policy in a few lines; "bailey explain" has all of it.
func inShort(s *spec.Spec) []string {
	var writes, private, hidden []string
	reads := 0
	for i := range s.Mounts {
		m := &s.Mounts[i]
		switch {
		case m.Kind == spec.Bind && m.Write:
			writes = append(writes, m.Target)
		case m.Kind == spec.Bind:
			reads++
		case m.Kind == spec.Private || m.Kind == spec.Tmpfs:
			private = append(private, m.Target)
		case m.Kind == spec.Hide:
			hidden = append(hidden, m.Target)
		}
	}
	lines := []string{
		"writes   " + paths(writes),
		"private  " + paths(private),
		fmt.Sprintf("reads    %d paths besides, %d hidden", reads, len(hidden)),
		"network  " + network(s),
	}
	if limits := limited(s.Limits); limits != "" {
		lines = append(lines, "limits   "+limits)
	}
	return lines
}

// paths leaves out those below others: what is mounted there is a detail.
func paths(list []string) string {
	var shown []string
	for _, p := range list {
		below := false
		for _, other := range list {
			below = below || p != other && spec.Covers(other, p)
		}
		if !below {
			shown = append(shown, plain.Word(p))
		}
	}
	if shown == nil {
		return "nothing"
	}
	return strings.Join(shown, " ")
}

func network(s *spec.Spec) string {
	switch s.Network {
	case spec.NetworkNone:
		return "closed"
	case spec.NetworkHost:
		return "the host's own, all of it"
	}
	c := s.GateConfig()
	var allowed, denied []string
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Action == config.Deny {
			denied = append(denied, ruleText(r))
		} else {
			allowed = append(allowed, ruleText(r))
		}
	}
	for _, r := range c.Ranges {
		allowed = append(allowed, plain.Word(r.CIDR))
	}
	text := "through the gate to " + strings.Join(allowed, " ")
	if allowed == nil {
		text = "through the gate to nothing"
	}
	if denied != nil {
		text += "; not to " + strings.Join(denied, " ")
	}
	if c.Default != config.Deny {
		text += "; else " + plain.Text(string(c.Default))
	}
	return text
}

// ruleText is the host of a rule, with its ports unless they are those of the web.
func ruleText(r *config.Rule) string {
	text := plain.Word(r.Host)
	var ports []string
	for _, p := range r.Ports {
		if p.From == p.To {
			ports = append(ports, fmt.Sprint(p.From))
		} else {
			ports = append(ports, fmt.Sprintf("%d-%d", p.From, p.To))
		}
	}
	if list := strings.Join(ports, ","); list != "" && list != "80,443" {
		text += ":" + list
	}
	if r.Action == config.Ask {
		text += " (asks)"
	}
	return text
}

func limited(l *spec.Limits) string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.Memory > 0 {
		parts = append(parts, "memory "+columns.Size(l.Memory))
	}
	if l.CPU > 0 {
		parts = append(parts, "cpu "+columns.Share(float64(l.CPU)/1000))
	}
	if l.Pids > 0 {
		parts = append(parts, fmt.Sprintf("pids %d", l.Pids))
	}
	if l.Disk > 0 {
		parts = append(parts, "disk "+columns.Size(l.Disk))
	}
	return strings.Join(parts, ", ")
}
