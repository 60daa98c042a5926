package seatbelt

import (
	"flag"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// policies are those of the conformance suite, by the name of their golden file.
var policies = map[string]string{
	"base":         `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"granted":      `{"filesystem": {"allowRead": ["` + outside + `"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"deny-read":    `{"filesystem": {"denyRead": ["` + project + `/sub/kept"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"deny-write":   `{"filesystem": {"denyWrite": ["` + project + `/sub"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"deny-pattern": `{"filesystem": {"denyRead": ["**/*.kept"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"missing":      `{"filesystem": {"protectMissing": true}, "network": {"allowAllUnixSockets": true}}`,
	"default":      `{}`,
	"environment":  `{"env": {"allow": ["CHOSEN"], "set": {"GIVEN": "given"}}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"command":      `{"command": {"deny": ["git push"]}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"open-network": `{"filesystem": {"protectMissing": false}, "network": {"allowedDomains": ["*"], "allowAllUnixSockets": true}}`,
	"gate":         `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true, "rules": [{"host": "127.0.0.1", "ports": [8080], "action": "allow"}]}}`,
	"gate-socket":  `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true, "egress": "socket", "rules": [{"host": "127.0.0.1", "ports": [8080], "action": "allow"}]}}`,
	"no-sockets":   `{"filesystem": {"protectMissing": false}}`,
	"one-socket":   `{"filesystem": {"protectMissing": false}, "network": {"allowUnixSockets": ["` + project + `/s.sock"]}}`,
	"memory":       `{"resources": {"memory": "96M"}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"pids":         `{"resources": {"pids": 64}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"disk":         `{"resources": {"disk": "8M"}, "filesystem": {"privateWrite": ["` + project + `"], "protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"open-files":   `{"resources": {"openFiles": 64}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
	"timeout":      `{"resources": {"timeout": "200ms"}, "filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`,
}

// tried says which policies the properties of the conformance suite use, besides
// the base, which all of them do.
var tried = map[string][]string{
	"what is granted is read, what is not is not":                      {"granted"},
	"what is granted is written, what is not is not":                   nil,
	"the home directory and /tmp are private":                          nil,
	"a denied path inside a grant is not read":                         {"deny-read"},
	"a denied path inside a grant is not written":                      {"deny-write"},
	"a file that a pattern denies is not read, however late it comes":  {"deny-pattern"},
	"git's hooks are not written":                                      nil,
	"git's hooks are not replaced by renaming what is above them":      nil,
	"a protected path that is a link is not replaced":                  nil,
	"protected names do not come into being":                           {"missing"},
	"the default policy":                                               {"default"},
	"the environment is a choice":                                      {"environment"},
	"streams carry bytes as they are":                                  nil,
	"no descriptor but the streams is inherited":                       nil,
	"the exit status is the command's":                                 nil,
	"a program that is missing or cannot be run is told apart":         nil,
	"signals reach the command":                                        nil,
	"a terminal is a terminal, and nothing is typed into the caller's": nil,
	"rules about commands hold at every exec":                          {"command"},
	"what the command asks for and does not get is told":               nil,
	"what the command used is told":                                    nil,
	"only its own processes are seen":                                  nil,
	"no process outside is signalled":                                  nil,
	"what is left in the background ends with the command":             nil,
	"the command ends when bailey is killed":                           nil,
	"what is left in the background ends when bailey is killed":        nil,
	"a closed network reaches nothing of the host":                     {"open-network"},
	"an open network is the host's":                                    {"open-network"},
	"hosts are reached through the gate at a unix socket":              {"gate-socket"},
	"hosts are reached through the gate at a port":                     {"gate"},
	"unix sockets of the host are reached only where they are granted": {"no-sockets", "one-socket"},
	"abstract sockets of the host are not reached":                     nil,
	"nothing is mounted, and no namespace made":                        nil,
	"no device node is made":                                           nil,
	"process 1 is not looked into":                                     nil,
	"calls that no sandbox needs are refused":                          nil,
	"there are no privileges to be had":                                nil,
	"the machine is not configured":                                    nil,
	"a limit of memory":                                                {"memory"},
	"a limit of processes":                                             {"pids"},
	"a limit of disk":                                                  {"disk"},
	"a limit of open files":                                            {"open-files"},
	"a limit of time":                                                  {"timeout"},
}

func TestEveryPolicyHasItsProfileOrItsRefusal(t *testing.T) {
	for name, text := range policies {
		t.Run(name, func(t *testing.T) {
			golden(t, name, shown(t, text))
		})
	}
}

// shown is a profile with the values of its parameters, or why there is none.
func shown(t *testing.T, text string) string {
	t.Helper()
	o := Options{Scratch: scratch}
	if strings.Contains(text, "rules") {
		o.Ports = []uint16{49152}
	}
	s := mustCompile(t, newMachine(project+"/s.sock"), text)
	p, err := New(s, o)
	if err != nil {
		return "refused: " + err.Error() + "\n"
	}
	var b strings.Builder
	b.WriteString(strings.Replace(p.Text, base, "[base]\n", 1))
	for _, v := range p.Params {
		b.WriteString("\n" + v.Name + "=" + v.Value)
	}
	return b.String() + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	testenv.Golden(t, name+".golden.txt", got, *update)
}
