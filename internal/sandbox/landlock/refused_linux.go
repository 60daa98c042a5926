package landlock

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/finding"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// leadsOn says whether the gate could let a connection to an address pass. No name
// is known for one: names are found by the gate alone. So it is the ports of the
// host's loopback that are granted, and elsewhere what grants addresses. Whether
// such a grant is about this one is left to the gate.
func leadsOn(g *spec.Gate, to netip.AddrPort) bool {
	if to == proxy {
		return true
	}
	if to.Addr().IsLoopback() {
		ports := g.Local
		if to.Addr().Is6() {
			ports = g.LocalIPv6
		}
		return slices.ContainsFunc(ports, func(p config.Ports) bool { return p.From <= to.Port() && to.Port() <= p.To })
	}
	return g.Config.Default != config.Deny || slices.ContainsFunc(g.Config.Rules, grantsAddresses) ||
		slices.ContainsFunc(g.Config.Ranges, func(r config.Range) bool {
			p, err := netip.ParsePrefix(r.CIDR)
			return err != nil || !p.Addr().IsLoopback()
		})
}

// grantsAddresses says whether a rule may grant addresses that are not loopback.
func grantsAddresses(r config.Rule) bool {
	addr, err := netip.ParseAddr(r.Host)
	return r.Action != config.Deny && (r.Host == "*" || err == nil && !addr.Unmap().IsLoopback())
}

// deny is what is told of a connection that does not lead on, as the gate would.
func deny(g *spec.Gate, to netip.AddrPort) *broker.Denial {
	host, port := to.Addr().String(), to.Port()
	d := &broker.Denial{Op: string(event.OpConnect), Host: host, Port: int(port), Why: "network.defaultAction deny"}
	d.Fix, _ = strings.CutPrefix(finding.GrantOf(host, strconv.Itoa(int(port))), "in a policy: ")
	for i := range g.Config.Rules {
		if r := &g.Config.Rules[i]; r.Action == config.Deny && (r.Host == "*" || r.Host == host) {
			d.Why, d.Where, d.Fix = r.Name, r.Where, "take back "+r.Name
			break
		}
	}
	return d
}

// errnoFor is what the kernel would say in a network with nothing but loopback, on
// which nobody listens.
func errnoFor(to netip.AddrPort) unix.Errno {
	if to.Addr().IsLoopback() {
		return unix.ECONNREFUSED
	}
	return unix.ENETUNREACH
}
