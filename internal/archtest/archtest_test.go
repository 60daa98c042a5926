package archtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

const (
	module = "github.com/bailey-sandbox/bailey"
	// lowest imports nothing of ours, so that every layer may import it.
	lowest = module + "/internal/plain"
)

// linked are packages that must not be part of a program, in any depth.
var linked = []struct {
	program string
	banned  []string
	reason  string
}{
	{"cmd/bailey", []string{"net", "net/http", "crypto/tls", "crypto/x509"}, "every command pays for its start; the gate is a program of its own"},
	{"cmd/bailey", []string{"os/exec"}, "the sandbox is built with system calls, and context plumbing costs start-up"},
	{"cmd/bailey", []string{"regexp", "text/template", "html/template", "go/ast"}, "tables built at init are paid by every command"},
	{"cmd/bailey", []string{"flag", "log", "log/slog", "testing", "expvar"}, "the run path parses its own flags and reports errors by exit status"},
	{"cmd/bailey", []string{"database/sql", "encoding/gob", "encoding/xml"}, "reflection-heavy formats belong to baileyd"},
	{"cmd/bailey", []string{module + "/internal/command/line", "mvdan.cc/sh/v3"}, "a shell parser's tables cost every command's start; the rules hold at exec"},
	{"cmd/bailey", []string{"github.com/google/jsonschema-go", "github.com/spf13/cobra", "google.golang.org/protobuf"}, "schema and command-tree code belongs to baileyd or to go generate"},
	{"cmd/bailey", []string{module + "/internal/sandbox/oci", module + "/internal/sandbox/docker", module + "/internal/image/pull", "github.com/moby", "github.com/opencontainers", "github.com/google/go-containerregistry"}, "engines are told by baileyd, to which the command hands the spec over"},
	{"cmd/bailey", []string{"github.com/hanwen/go-fuse"}, "file systems are served by baileyd, which the command asks"},
	{"cmd/bailey-guard", []string{"net/http", "database/sql", "github.com/moby", "github.com/google/go-containerregistry"}, "it is started several times for each command of an OCI runtime"},
	{"cmd/baileyd", []string{"connectrpc.com/connect", "github.com/prometheus", "modernc.org/sqlite"}, "the keeper and the hand-over to engines wait for its start; the server is a program of its own"},
	{"cmd/bailey-gate", []string{"database/sql", "github.com/spf13/cobra", "google.golang.org/protobuf"}, "the gate starts when a connection arrives: net/http and TLS, nothing heavier"},
}

// imported are direct imports that a package, or any package below it, must not
// have.
var imported = []struct {
	importer string
	banned   []string
	reason   string
}{
	{"internal/policy", []string{module + "/"}, "policy is the lowest layer: what is granted, without knowing how"},
	{"internal/policy", []string{"golang.org/x/sys"}, "policy compiles and is tested on every system"},
	{"internal/spec", []string{"golang.org/x/sys"}, "spec compiles and is tested on every system"},
	{"internal/spec", []string{module + "/internal/sandbox", module + "/internal/terminal", module + "/internal/broker", module + "/internal/keeper", module + "/internal/gate/launch", module + "/cmd", "net", "net/http"}, "a spec says what to do; runtimes, above it, know how"},
	{"internal/host", []string{module + "/internal/sandbox", module + "/internal/terminal", module + "/cmd"}, "facts about the machine are gathered before anything is decided"},
	{"internal/pattern", []string{module + "/", "golang.org/x/sys"}, "patterns are pure, and asked by policy's compiler and the broker alike"},
	{"internal/pathrule", []string{module + "/internal/policy", module + "/internal/spec", module + "/internal/sandbox", "golang.org/x/sys"}, "path permissions are pure, and asked by the compiler and by who shows files alike"},
	{"internal/rulefs", []string{module + "/internal/policy", module + "/internal/spec", module + "/internal/sandbox", module + "/internal/keeper"}, "who shows files is told by which rules, and knows nothing of sandboxes"},
	{"internal/foreign", []string{module + "/internal/sandbox", module + "/internal/host", module + "/cmd", "golang.org/x/sys"}, "what a file means is asked before anything is known of the machine's walls"},
	{"internal/hooks", []string{module + "/", "golang.org/x/sys"}, "other programs' files are edited by their own rules"},
	{"internal/event", []string{module + "/"}, "every layer records what happens, so events stand below all of them"},
	{"internal/command", []string{module + "/internal/spec", module + "/internal/sandbox", "golang.org/x/sys"}, "rules about commands are pure: who watches execs asks"},
	{"internal/broker", []string{module + "/internal/policy", module + "/internal/sandbox"}, "nothing after the spec decides policy"},
	{"internal/plain", []string{module + "/", "golang.org/x/sys"}, "every layer shows text to people, so what makes it harmless stands below all of them"},
	{"internal/columns", []string{module + "/", "golang.org/x/sys"}, "who shows figures need not know what they are"},
	{"internal/ready", []string{module + "/"}, "who waits for a descriptor need not know what it is"},
	{"internal/peer", []string{module + "/"}, "who looks at the other end of a socket need not know what goes through it"},
	{"internal/processes", []string{module + "/"}, "who looks at processes need not know whose they are"},
	{"internal/wire", []string{module + "/"}, "what carries messages knows none of them"},
	{"internal/trace", []string{module + "/"}, "every layer records its steps, so the trace stands below all of them"},
	{"internal/limits", []string{module + "/internal/policy", module + "/internal/sandbox", module + "/internal/host"}, "nothing after the spec decides policy, and every runtime may hold limits"},
	{"internal/sandbox/native", []string{module + "/internal/policy"}, "nothing after the spec decides policy"},
	{"internal/sandbox/native", []string{module + "/internal/sandbox/landlock"}, "landlock takes from native what needs no namespaces, not the other way round"},
	{"internal/sandbox/native", []string{module + "/internal/sandbox/bwrap", module + "/internal/engine", module + "/internal/foreground"}, "native knows that there are helpers, not which"},
	{"internal/sandbox/bwrap", []string{module + "/internal/policy", module + "/internal/engine"}, "nothing after the spec decides policy"},
	{"internal/engine", []string{module + "/internal/policy", module + "/internal/sandbox/oci"}, "engines know this package, and baileyd knows the engines"},
	{"internal/sandbox/landlock", []string{module + "/internal/policy"}, "nothing after the spec decides policy"},
	{"internal/server/transport", []string{module + "/internal/keeper", module + "/internal/sandbox", module + "/internal/workspace"}, "how requests arrive does not depend on what they do"},
	{"internal/store", []string{module + "/internal/server"}, "what is kept does not depend on who keeps it"},
	{"internal/sandbox", []string{module + "/internal/server", module + "/internal/keeper", module + "/cmd"}, "imports run downwards: cmd, server, sandbox, spec, policy"},
	{"internal/store", []string{module + "/"}, "what is remembered is told by whoever wants it remembered"},
	{"internal/workspace", []string{module + "/internal/sandbox", module + "/internal/keeper", module + "/internal/spec", module + "/internal/policy"}, "workspaces are directories: who mounts them asks for paths"},
	{"internal/workspace/delta", []string{module + "/internal/workspace/archive", module + "/internal/workspace/blob", module + "/internal/workspace/change"}, "the command links it: the engine stands above"},
	{"internal/workspace/fault", []string{module + "/"}, "every layer of workspaces marks its steps"},
	{"internal", []string{module + "/cmd"}, "imports run downwards: cmd, server, sandbox, spec, policy"},
}

func TestProgramsLinkNothingHeavy(t *testing.T) {
	testenv.Requires(t, testenv.Modules)
	for _, rule := range linked {
		for _, dependency := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./"+rule.program) {
			for _, banned := range rule.banned {
				if within(dependency, banned, rule.program) {
					t.Errorf("%s links %s: %s\n%s", rule.program, dependency, rule.reason, why(t, rule.program, dependency))
				}
			}
		}
	}
}

func TestImportsRunDownwards(t *testing.T) {
	testenv.Requires(t, testenv.Modules)
	for _, line := range goList(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...") {
		fields := strings.Fields(line)
		importer := strings.TrimPrefix(fields[0], module+"/")
		for _, rule := range imported {
			if importer != rule.importer && !strings.HasPrefix(importer, rule.importer+"/") {
				continue
			}
			for _, dependency := range fields[1:] {
				if dependency == lowest {
					continue
				}
				for _, banned := range rule.banned {
					if within(dependency, banned, rule.importer) {
						t.Errorf("%s imports %s: %s", importer, dependency, rule.reason)
					}
				}
			}
		}
	}
}

func TestTestPackagesStayOutOfPrograms(t *testing.T) {
	testenv.Requires(t, testenv.Modules)
	for _, dependency := range goList(t, "-deps", "-f", "{{.ImportPath}}", "./cmd/...") {
		if dependency == "testing" || within(dependency, module+"/internal/testenv", "cmd") {
			t.Errorf("a command links %s: test support is not part of a program", dependency)
		}
	}
}

// within tells whether a dependency is the banned package. Packages of the
// standard library are banned by exact name, since net/netip is not net; others
// with everything below them, but for what belongs to the importer itself.
func within(dependency, banned, importer string) bool {
	if own := module + "/" + importer; dependency == own || strings.HasPrefix(dependency, own+"/") {
		return false
	}
	if dependency == banned {
		return true
	}
	isStandard := !strings.Contains(strings.SplitN(banned, "/", 2)[0], ".")
	return !isStandard && strings.HasPrefix(dependency, strings.TrimSuffix(banned, "/")+"/")
}

// why shows one package of the program that imports the dependency, which is
// where to look first.
func why(t *testing.T, program, dependency string) string {
	for _, line := range goList(t, "-deps", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./"+program) {
		fields := strings.Fields(line)
		for _, imported := range fields[1:] {
			if imported == dependency {
				return "\timported by " + fields[0]
			}
		}
	}
	return ""
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	watchSources(t)
	list := exec.Command("go", append([]string{"list"}, args...)...)
	list.Dir = testenv.ModuleRoot(t)
	list.Env = append(os.Environ(), "GOPROXY=off", "GOOS=linux", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// watchSources looks at every source file, because the go command keeps the
// result of a test until a file that the test itself looked at changes, and
// does not see what "go list" reads.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(testenv.ModuleRoot(t), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		_, err = os.Stat(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
