package archtest

import (
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// gateModules are all that the gate is made of besides the standard library. It
// stands between a sandbox and the world, so what it links is short enough to be
// read.
var gateModules = []string{
	module + "/cmd/bailey-gate",
	module + "/internal/gate",
	module + "/internal/event",
	module + "/internal/plain",
	module + "/internal/policy/notation", // pure, and the policy is checked with it too
	module + "/internal/version",
	"github.com/bmatcuk/doublestar/v4", // through internal/event, which can filter by path
	"golang.org/x/net",
	"golang.org/x/sys",
	"golang.org/x/text",
}

func TestGateLinksOnlyWhatItNeeds(t *testing.T) {
	testenv.Requires(t, testenv.Modules)
	for _, dependency := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/bailey-gate") {
		if !below(dependency, gateModules) {
			t.Errorf("cmd/bailey-gate links %s: it is the gate's job to be small\n%s", dependency, why(t, "cmd/bailey-gate", dependency))
		}
	}
}

// What the command tells the gate is linked into the command, which every
// sandboxed command pays for.
func TestWhatTheGateIsToldIsLight(t *testing.T) {
	testenv.Requires(t, testenv.Modules)
	heavy := []string{
		"net", "net/http", "net/url", "os/exec", "crypto/tls", "crypto/x509", "crypto/ecdsa", "regexp", "golang.org/x/net", "golang.org/x/text",
	}
	for _, light := range []string{"internal/gate/config", "internal/gate/grants", "internal/policy/notation"} {
		for _, dependency := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./"+light) {
			for _, banned := range heavy {
				if within(dependency, banned, light) {
					t.Errorf("%s links %s: the command links it too, and has no use for the network\n%s", light, dependency, why(t, light, dependency))
				}
			}
		}
	}
}

func below(dependency string, roots []string) bool {
	for _, root := range roots {
		if dependency == root || strings.HasPrefix(dependency, root+"/") {
			return true
		}
	}
	return false
}
