package finding

import (
	"fmt"
	"strings"
)

// LeadsInside says whether a host is the sandbox's own loopback, from which only
// granted ports lead to the host's.
func LeadsInside(host string) bool {
	host = strings.ToLower(strings.Trim(host, "[]"))
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.") || strings.HasSuffix(host, ".localhost")
}

// GrantOf is the least part of a policy that lets a host be reached at a port,
// which is empty if none was named.
func GrantOf(host, port string) string {
	switch {
	case LeadsInside(host) && port != "":
		return fmt.Sprintf(`in a policy: "network": {"allowLocalOutboundPorts": [%q]}`, port)
	case LeadsInside(host):
		return `in a policy, with its port: "network": {"allowLocalOutboundPorts": [...]}`
	case port == "22":
		return fmt.Sprintf(`in a policy: "ssh": {"allowedHosts": [%q]}`, host)
	case port == "", port == "80", port == "443":
		return fmt.Sprintf(`in a policy: "network": {"allowedDomains": [%q]}`, host)
	}
	return fmt.Sprintf(`in a policy: "network": {"rules": [{"host": %q, "ports": [%q], "action": "allow"}]}`, host, port)
}
