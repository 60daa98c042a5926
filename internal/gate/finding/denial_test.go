package finding

import "testing"

func TestDenialsAreTakenBackWhereTheyStand(t *testing.T) {
	for _, c := range []struct{ rule, where, grant, want string }{
		{"network.deniedDomains *", "offline:8:23", "", `in a policy that extends it: "network": {"deniedDomains": ["!*"]}`},
		{"network.deniedDomains *", "offline:8:23", GrantOf("x.com", "443"), `in a policy that extends it: "network": {"deniedDomains": ["!*"], "allowedDomains": ["x.com"]}`},
		{"network.deniedDomains *", "offline:8:23", GrantOf("x.com", "22"), `in a policy that extends it: "network": {"deniedDomains": ["!*"]}, "ssh": {"allowedHosts": ["x.com"]}`},
		{"filesystem.denyRead /etc/shadow", "", "", `in a policy that extends it: "filesystem": {"denyRead": ["!/etc/shadow"]}`},
		{"network.deniedDomains *", "/p/bailey.jsonc:1:2", "", "remove network.deniedDomains *"},
		{"network.deniedDomains *", "--policy:1:2", GrantOf("x.com", ""), `remove network.deniedDomains *; then in a policy: "network": {"allowedDomains": ["x.com"]}`},
		{"env.deny A", "command line", "", "remove env.deny A"},
		{"network.rules[0] x.com", "/p/bailey.jsonc:1:2", "", "change network.rules[0]"},
		{"network.deniedDomains @npm (a.test, /home/u/.npmrc)", "/p/bailey.jsonc:1:2", "", "remove network.deniedDomains @npm"},
	} {
		got := TakeBack(c.rule, c.where)
		if c.grant != "" {
			got = TakeBackAndGrant(c.rule, c.where, c.grant)
		}
		if got != c.want {
			t.Errorf("%s at %q: got %s, want %s", c.rule, c.where, got, c.want)
		}
	}
}
