package server

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strconv"

	"google.golang.org/protobuf/proto"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/limits"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Allotment is what one sandbox may use. Zero is no limit.
type Allotment struct {
	Memory int64   // bytes
	CPU    float64 // processors
	Pids   int
}

// or is an allotment with what another has where it has none.
func (a Allotment) or(b Allotment) Allotment {
	return Allotment{Memory: cmp.Or(a.Memory, b.Memory), CPU: cmp.Or(a.CPU, b.CPU), Pids: cmp.Or(a.Pids, b.Pids)}
}

// checkAllotments refuses to serve with limits that contradict each other, or that this
// machine cannot hold: every sandbox would be refused.
func (c *Config) checkAllotments() error {
	for _, l := range []struct {
		name        string
		usual, most float64
	}{
		{"memory", float64(c.Usual.Memory), float64(c.Most.Memory)}, {"cpu", c.Usual.CPU, c.Most.CPU}, {"pids", float64(c.Usual.Pids), float64(c.Most.Pids)},
	} {
		if l.most > 0 && l.usual > l.most {
			return fmt.Errorf("the default of %s is more than the most that a sandbox may have: lower --default-%s, or raise --max-%s", l.name, l.name, l.name)
		}
	}
	usual := c.Usual.or(c.Most)
	want := &spec.Limits{Memory: usual.Memory, CPU: int64(math.Round(usual.CPU * 1000))}
	if os.Geteuid() == 0 { // for others the kernel counts without a control group
		want.Pids = usual.Pids
	}
	if err := limits.Check(want); err != nil {
		return fmt.Errorf("no sandbox could have the limits of --default and --max: %w", err)
	}
	return nil
}

// allot gives a sandbox the limits of the server where it asks for none, in its fields or
// its policy.
func (s *Server) allot(k *kept) {
	give := s.config.Usual.or(s.config.Most)
	if give == (Allotment{}) {
		return
	}
	own := &policy.Resources{}
	if text := k.request.GetPolicy(); text != "" {
		p, err := policy.Parse("policy", []byte(text))
		if err != nil {
			return // it will be said
		}
		own = &p.Resources
	}
	r := proto.CloneOf(k.request.GetResources())
	if r == nil {
		r = &baileyv1.Resources{}
	}
	if own.Memory == nil && r.GetMemoryBytes() == 0 {
		r.MemoryBytes = give.Memory
	}
	if own.CPU == nil && r.GetCpuQuota() == 0 {
		r.CpuQuota = int64(math.Round(give.CPU * cpuPeriod))
	}
	if own.Pids == nil && r.GetPidsLimit() == 0 {
		r.PidsLimit = int32(give.Pids) //nolint:gosec // a flag of 32 bits
	}
	k.request.Resources, k.sandbox.Resources = r, r
}

// cpuPeriod is what a quota of processor time is of: all of one processor.
const cpuPeriod = 100_000

// within refuses a sandbox with limits beyond those of the server.
func (a Allotment) within(sp *spec.Spec) error {
	var have spec.Limits
	if sp.Limits != nil {
		have = *sp.Limits
	}
	if n, ok := sp.UserPids(); ok {
		have.Pids = int(n) //nolint:gosec // a policy has it as an int
	}
	for _, l := range []struct {
		key        string
		have, most int64
		text       string
	}{
		{"memory", have.Memory, a.Memory, policy.Size(a.Memory).String()},
		{"cpu", have.CPU, int64(math.Round(a.CPU * 1000)), strconv.FormatFloat(a.CPU, 'f', -1, 64)},
		{"pids", int64(have.Pids), int64(a.Pids), strconv.Itoa(a.Pids)},
	} {
		if l.most > 0 && (l.have > l.most || l.have <= 0) {
			return problem.Invalid("resources", "%s: a sandbox of this server has at most %s", l.key, l.text)
		}
	}
	return nil
}
