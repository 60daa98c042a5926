package main

import (
	"context"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	gate "github.com/bailey-sandbox/bailey/internal/gate/launch"
	"github.com/bailey-sandbox/bailey/internal/learn"
	"github.com/bailey-sandbox/bailey/internal/monitor"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// contacts are the hosts that a command under observation wants to reach. The network
// gate is told to ask about what no rule decides, so that it tells of hosts and ports
// before a name is looked up outside, and the answers are made here.
type contacts struct {
	open  bool // everything may be reached
	ask   bool // nothing is open or left to a proxy, so that there is something to ask
	asks  bool // the policy itself asks about what no rule decides
	rules []config.Rule
	// groups are what hosts may be proposed as.
	groups []learn.Group

	mu   sync.Mutex
	list map[learn.Contact]bool
	full bool // something is not in it
}

// maxContacts bounds what is remembered.
const maxContacts = 1000

// beginNetwork finds out what the base policy says about the network, and what
// groups stand for. A closed network has no gate. What the base is judged by then
// has one, which lets nothing through: with it come files that a proposal of hosts
// brings as well.
func (l *lesson) beginNetwork() error {
	h, n := &l.hosts, &l.loaded.Policy.Network
	if h.ask = l.base.Network == spec.NetworkGate || l.base.Network == spec.NetworkNone; !h.ask {
		return nil
	}
	if a := n.DefaultAction; a != nil {
		h.ask, h.asks = *a != string(config.Proxy), *a == string(config.Ask)
	}
	if _, err := gate.Program(); err != nil && l.base.Network == spec.NetworkNone {
		say(tagWarning, "hosts are not learned: "+err.Error())
		h.ask = false
	}
	if !h.ask {
		return nil
	}
	if h.open {
		say(tagWarning, "while it learns, the command can read nearly everything and reach every host; that is for code that you trust")
	}
	c := l.config
	h.observe(&c.Overrides.Network)
	c.Overrides.Network.AllowedDomains = policy.Groups()
	m := sandbox.New(c)
	if err := m.Initialize(); err != nil {
		return err
	}
	over, err := supposedOverlay(m)
	if err != nil {
		return err
	}
	s, err := m.CompileOver(l.argv, over)
	if err != nil || s.Gate == nil {
		return err
	}
	for _, r := range s.Gate.Config.Rules {
		if name, ok := nameOfGroup(&r); ok {
			l.addToGroup(name, r)
		}
	}
	if l.base.Gate != nil {
		h.rules = l.base.Gate.Config.Rules
	}
	l.base = s
	return nil
}

// nameOfGroup returns the group that a rule comes from.
func nameOfGroup(r *config.Rule) (string, bool) {
	entry, ok := strings.CutPrefix(r.Name, "network.allowedDomains @")
	name, _, ok2 := strings.Cut(entry, " ")
	return "@" + name, ok && ok2
}

func (l *lesson) addToGroup(name string, r config.Rule) {
	h := &l.hosts
	for i := range h.groups {
		if h.groups[i].Name == name {
			h.groups[i].Rules = append(h.groups[i].Rules, r)
			return
		}
	}
	h.groups = append(h.groups, learn.Group{Name: name, Rules: []config.Rule{r}})
}

// observe has the gate ask about what no rule decides.
func (h *contacts) observe(n *policy.Network) {
	if !h.ask {
		return
	}
	n.AllowedDomains, n.DefaultAction = nil, new(string(config.Ask))
}

// listen takes the place of who answers questions of the gate, and of who is told
// what it did. A person is asked only what the policy asks.
func (l *lesson) listen(person gate.AskFunc, told func(*event.Event)) (gate.AskFunc, func(*event.Event)) {
	h := &l.hosts
	if !h.ask {
		return person, told
	}
	answer := func(ctx context.Context, q config.Message) string {
		if q.Rule == nil {
			h.add(learn.Contact{Program: broker.ProcessName(q.Pid), Host: q.Host, Port: q.Port})
		}
		switch {
		case q.Rule == nil && h.open:
			return config.ForRun
		case (q.Rule != nil || h.asks) && person != nil:
			return person(ctx, q)
		case q.Rule != nil:
			return config.Unanswered
		}
		return config.Refusing
	}
	return answer, func(e *event.Event) {
		if e.Kind == event.Deny {
			h.denied(e)
		}
		told(e)
	}
}

// denied takes a denial of the gate. One that was an answer of this process looks
// as if nobody had been asked; what would allow it is in the proposal.
func (h *contacts) denied(e *event.Event) {
	c := learn.Contact{Program: e.Process, Host: e.Host}
	switch {
	case e.Rule == "asked, and refused" && !h.asks:
		e.Rule, e.Fix = "not granted", ""
		return
	case e.Rule == "special address":
		c.Special = e.Address
	case strings.HasPrefix(e.Rule, "network.deniedDomains "), strings.HasPrefix(e.Rule, "network.rules["), strings.HasPrefix(e.Rule, "ssh.deniedHosts "):
		c.Denied = e.Rule
	default:
		return
	}
	h.add(c)
}

func (h *contacts) add(c learn.Contact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.list == nil:
		h.list = map[learn.Contact]bool{}
	case len(h.list) >= maxContacts:
		h.full = true
		return
	}
	h.list[c] = true
}

// options are what a proposal is made of besides files.
func (l *lesson) options() learn.Options {
	h := &l.hosts
	h.mu.Lock()
	defer h.mu.Unlock()
	o := learn.Options{
		Home: l.names.Home, Project: l.names.Project, Files: monitor.HostFiles{}, Granted: l.granted,
		Rules: h.rules, Groups: h.groups,
	}
	for c := range h.list {
		o.Contacts = append(o.Contacts, c)
	}
	return o
}
