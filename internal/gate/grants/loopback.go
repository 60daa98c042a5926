package grants

import (
	"net/netip"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/policy"
)

// The host's loopback, by name and by address.
const (
	localhost = "localhost"
	loopback4 = "127.0.0.1"
	loopback6 = "::1"
)

// Loopback are ports of the host's loopback that a policy names, for each family
// of addresses.
type Loopback struct{ IPv4, IPv6 []config.Ports }

// LoopbackOf are the ports at which a policy grants the host's loopback by naming
// it as a host. Whether each may be reached is decided by the rules.
func LoopbackOf(p *policy.Policy) (l Loopback, err error) {
	if shutsLoopback(p) {
		return l, nil
	}
	for _, host := range p.Network.AllowedDomains {
		l.add(host, webPorts)
	}
	for _, host := range p.SSH.AllowedHosts {
		l.add(host, sshPorts)
	}
	for i := range p.Network.Rules {
		from := &p.Network.Rules[i]
		if config.Action(from.Action) == config.Deny {
			continue
		}
		r := config.Rule{Schemes: from.Schemes}
		if r.Ports, err = Ports(from.Ports); err != nil {
			return Loopback{}, err
		}
		narrow(&r, Endpoint{Host: from.Host})
		l.add(from.Host, r.Ports)
	}
	return l, nil
}

func (l *Loopback) add(host string, ports []config.Ports) {
	is4, is6 := isLoopback(host)
	if is4 {
		l.IPv4 = append(l.IPv4, ports...)
	}
	if is6 {
		l.IPv6 = append(l.IPv6, ports...)
	}
}

// isLoopback says of which families a host is loopback, by its name or as an
// address.
func isLoopback(host string) (is4, is6 bool) {
	if strings.EqualFold(host, localhost) {
		return true, true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || !addr.Unmap().IsLoopback() {
		return false, false
	}
	return addr.Unmap().Is4(), addr.Is6() && !addr.Is4In6()
}

// shutsLoopback says whether a policy keeps the host's loopback out of reach,
// whatever else it grants.
func shutsLoopback(p *policy.Policy) bool {
	return p.Network.AllowLocalOutbound != nil && !*p.Network.AllowLocalOutbound
}
