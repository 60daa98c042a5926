package spec

import (
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Variable says what becomes of a variable of the environment, and why.
type Variable struct {
	Enters bool   // with the caller's value
	Set    bool   // to another, whatever the caller has
	Rule   string // the line of the policy that decides, or what else does
	Fix    string // what would change it
}

// Variable says what a policy, of which this is the Spec, makes of a variable that
// the caller has, or would have, with a value.
func (s *Spec) Variable(p *policy.Policy, name, value string) Variable {
	inside, isSet := s.variable(name)
	enters := judge(&p.Env, name, value, s.Image != nil) == entersAs
	_, given := p.Env.Set[name]
	switch {
	case given && inside == p.Env.Set[name]:
		return Variable{Set: true, Rule: "env.set " + name}
	case isSet && slices.ContainsFunc(p.Network.Inject, func(i policy.Injection) bool { return i.Placeholder == name }):
		return Variable{Set: true, Rule: "network.inject, to a placeholder"}
	case isSet && (!enters || inside != value):
		return Variable{Set: true, Rule: "every sandbox has it, with a value of its own"}
	case enters:
		return Variable{Enters: true, Rule: entersBy(&p.Env, name, s.Image != nil)}
	}
	return keptOut(&p.Env, name, value, s.Image != nil)
}

// variable is the value of a variable inside.
func (s *Spec) variable(name string) (value string, ok bool) {
	for _, v := range s.Env {
		if value, ok = strings.CutPrefix(v, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// entersBy is what lets a variable in.
func entersBy(e *policy.Env, name string, inImage bool) string {
	switch i := firstMatch(e.Allow, name); {
	case slices.Contains(e.Allow, name):
		return "env.allow " + name
	case isListed(name, inImage) || i < 0:
		return "it is one of those that enter by themselves"
	default:
		return "env.allow " + e.Allow[i]
	}
}

// keptOut says why a variable stays outside.
func keptOut(e *policy.Env, name, value string, inImage bool) Variable {
	i := firstMatch(e.Deny, name)
	switch {
	case strings.HasPrefix(name, "BAILEY"):
		return Variable{Rule: "names that begin with BAILEY are Bailey's own, and never enter"}
	case neverEnters(name):
		return Variable{
			Rule: "it makes programs load or run something as they start, and never enters",
			Fix:  `in a policy, if that is meant: "env": {"set": {"` + name + `": "…"}}`,
		}
	case i >= 0:
		return Variable{Rule: "env.deny " + e.Deny[i], Fix: "take back env.deny " + e.Deny[i]}
	case judge(e, name, value, inImage) == looksSecret:
		return Variable{Rule: "it looks like a secret", Fix: "--env " + name}
	}
	return Variable{Rule: "env.allow does not list it", Fix: "--env " + name}
}
