package keeper

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Look asks what is inside a sandbox, by the number of its process 1: names may
// be given to another meanwhile.
type Look struct{ Pid int }

// Inside is what somebody wants to know who looks at one sandbox.
type Inside struct {
	// Spec is what was decided about it. What the gate is told is what holds now.
	Spec      spec.Spec
	Processes []Process
	// Events are the latest, the last of them last.
	Events []event.Numbered
}

// Process is one of a sandbox, besides process 1.
type Process struct {
	Pid    int // as the host numbers it
	CPU    time.Duration
	Memory int64
	Argv   []string
}

// told is an Inside on its way: an event's form is JSON.
type told struct {
	Spec      spec.Spec
	Processes []Process
	Numbers   []int
	Events    [][]byte
}

// Inspect returns what is inside a sandbox.
func Inspect(pid int) (*Inside, error) {
	c, answer, err := ask(askLook, Look{pid}, false)
	if c == nil && err == nil {
		err = errEnded()
	}
	if err != nil {
		return nil, err
	}
	defer c.close()
	var t told
	if err := answer.decode(&t); err != nil {
		return nil, err
	}
	inside := &Inside{Spec: t.Spec, Processes: t.Processes}
	for i, line := range t.Events {
		e, err := event.Decode(line)
		if err != nil {
			return nil, err
		}
		inside.Events = append(inside.Events, event.Numbered{Number: t.Numbers[i], Event: *e})
	}
	return inside, nil
}

// errEnded says that there is nothing to look at any more. It is made when it is
// needed: what is put together at start-up every command pays for.
func errEnded() error { return fmt.Errorf("%w any more", ErrMissing) }

func (k *Keeper) look(c *conn, r *received) error {
	var l Look
	if err := r.decode(&l); err != nil {
		return err
	}
	b := k.byPid(l.Pid)
	if b == nil {
		return errEnded()
	}
	t := told{Spec: *b.spec, Processes: inside(l.Pid)}
	if gate := b.spec.Gate; gate != nil {
		now := *gate
		now.Config = b.rules()
		t.Spec.Gate = &now
	}
	for _, e := range b.recent.Events() {
		t.Numbers = append(t.Numbers, e.Number)
		t.Events = append(t.Events, e.Event.AppendLine(nil))
	}
	return c.send(tellInside, t)
}

// byPid finds a sandbox, also one that takes no commands any more.
func (k *Keeper) byPid(pid int) *box {
	k.mu.Lock()
	defer k.mu.Unlock()
	for b := range k.all {
		select {
		case <-b.ready:
		default:
			continue
		}
		if b.err == nil && b.resident.Pid == pid {
			return b
		}
	}
	return nil
}

// rules are what the gate was told last.
func (b *box) rules() config.Config {
	b.changing.Lock()
	defer b.changing.Unlock()
	if b.now != nil {
		return *b.now
	}
	return b.spec.GateConfig()
}

// Allow asks for a connection to be allowed that was denied, by the number of the
// event.
type Allow struct{ Pid, Number int }

// AllowDenied lets a sandbox reach what the gate has refused it, for as long as
// it stands or until its rules are loaded again. It is known by the same policy as
// before: a person has decided about this one sandbox, as with an answer to a
// question of the gate.
func AllowDenied(pid, number int) error {
	c, _, err := ask(askAllow, Allow{pid, number}, false)
	if c == nil && err == nil {
		err = errEnded()
	}
	if err != nil {
		return err
	}
	c.close()
	return nil
}

func (k *Keeper) allow(c *conn, r *received) error {
	var a Allow
	if err := r.decode(&a); err != nil {
		return err
	}
	b := k.byPid(a.Pid)
	if b == nil {
		return errEnded()
	}
	e, ok := b.recent.Find(a.Number)
	if !ok {
		return errors.New("too much has happened since, and the denial is forgotten; it can be allowed when it comes again")
	}
	if err := b.allow(&e); err != nil {
		return err
	}
	return c.send(tellDone, nil)
}

func (b *box) allow(e *event.Event) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	c := b.spec.GateConfig()
	if b.now != nil {
		c = *b.now
	}
	c, err := Allowing(c, e)
	if err != nil {
		return err
	}
	if err := b.gate.Reload(c); err != nil {
		return err
	}
	b.now = &c
	return nil
}

// Rules by which the gate denies what could be allowed without taking something
// else back.
const (
	ruleDefault = "network.defaultAction deny"
	ruleSpecial = "special address"
)

// CanAllow says whether Allowing knows what to do about an event. Where rules
// depend on what TLS hides, to allow the host would allow more than they do.
func CanAllow(e *event.Event) bool {
	if e.Kind != event.Deny || e.Op != event.OpConnect || e.Port <= 0 || e.Port > 0xffff || strings.HasPrefix(e.Fix, `"inspect"`) {
		return false
	}
	return e.Rule == ruleDefault && e.Host != "" || e.Rule == ruleSpecial && e.Address != ""
}

// dependsOnMethod says whether the host is allowed, and only the method was not.
func dependsOnMethod(e *event.Event) bool {
	return e.Method != "" && strings.Contains(e.Fix, `"methods": [`)
}

// Grant is what Allowing adds, for people. To allow an address allows all of it.
func Grant(e *event.Event) string {
	switch {
	case e.Rule == ruleSpecial:
		return "every port of " + plain.Word(e.Address)
	case dependsOnMethod(e):
		return plain.Word(e.Method) + " " + e.Subject()
	}
	return e.Subject()
}

// Allowing returns the gate's configuration with one grant more: exactly what a
// denial names. What a rule of the policy denies stays denied, whatever is added
// after it.
func Allowing(c config.Config, e *event.Event) (config.Config, error) {
	switch {
	case !CanAllow(e) && e.Where != "":
		return c, fmt.Errorf("%s at %s decides this; change that, and then: bailey box reload NAME", plain.Text(e.Rule), plain.Text(e.Where))
	case !CanAllow(e):
		return c, errors.New("only a policy can allow this")
	case e.Rule == ruleSpecial:
		c.Ranges = append(slices.Clip(c.Ranges), config.Range{CIDR: e.Address})
		return c, nil
	}
	rule := config.Rule{
		Host: e.Host, Ports: []config.Ports{{From: uint16(e.Port), To: uint16(e.Port)}},
		Action: config.Allow, Name: "allowed in box top",
	}
	if dependsOnMethod(e) {
		rule.Methods = []string{e.Method}
	}
	c.Rules = append(slices.Clip(c.Rules), rule)
	return c, nil
}

// event is the denial as it is recorded. A flag that would allow it is followed
// by the path.
func (e *denied) event(sandbox string) *event.Event {
	v := e.Event(sandbox, e.Process)
	if spec.LacksPath(v.Fix) {
		v.Fix += " " + plain.Word(v.Path)
	}
	return v
}
