package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// greet answers with how it was asked.
func (s *site) greet() {
	s.mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.Host)
	})
}

const greeting = "hello from " + grantedHost

// fetching is a client that runs a program with URLs at the end, in the clear
// and in TLS. It is to try both.
func fetching(name string, argv ...string) client {
	return client{
		name: name,
		argv: func(host string) []string {
			return slices.Concat(argv, []string{"http://" + host + "/hello", "https://" + host + "/hello"})
		},
		works: func(r result) error {
			for _, scheme := range []string{"http", "https"} {
				if want := scheme + "://" + grantedHost + "/hello: " + greeting; !strings.Contains(r.stdout, want) {
					return fmt.Errorf("it does not print %q", want)
				}
			}
			return nil
		},
	}
}

func TestPythonLibrariesReachGrantedHosts(t *testing.T) {
	testenv.Requires(t, testenv.File(systemPython), testenv.File(pythonPackages(t)))
	atSite(t, func(t *testing.T, s *site) {
		s.greet()
		s.python(t)
		script := s.program(t, "fetch.py")
		for _, library := range []string{"urllib", "requests", "httpx", "httpx_async", "aiohttp"} {
			s.reaches(t, fetching(library, systemPython, script, library))
		}
	})
}

func TestNodeReachesGrantedHosts(t *testing.T) {
	testenv.Requires(t, testenv.Program("node"))
	atSite(t, func(t *testing.T, s *site) {
		s.greet()
		script := s.program(t, "fetch.mjs")
		for _, how := range []string{"fetch", "http"} {
			s.reaches(t, fetching(how, "node", script, how))
		}
	})
}

// A Node that heeds NODE_USE_ENV_PROXY needs no capture: where there is none, the
// variable is all that leads it to the gate.
func TestNodeHeedsTheVariablesThatNameTheGate(t *testing.T) {
	node := filepath.Join(agentDir("node24"), "node")
	testenv.Requires(t, testenv.Long, testenv.File(node))
	// Where it is installed, and what that is a link to.
	real, err := filepath.EvalSymlinks(node)
	if err != nil {
		t.Fatal(err)
	}
	atSite(t, func(t *testing.T, s *site) {
		s.greet()
		s.see = append(s.see, real)
		script := s.program(t, "fetch.mjs")
		const uncaptured = `"transparent": false, "allowedDomains": ["` + grantedHost + `"]`
		for _, how := range []string{"fetch", "http"} {
			c := fetching(how, real, script, how)
			c.network = uncaptured
			s.tries(t, c, true)
			t.Run(how+" without them", func(t *testing.T) {
				argv := append([]string{"env", "-u", "NODE_USE_ENV_PROXY"}, c.argv(grantedHost)...)
				if got := s.under(s.policy(uncaptured), argv...); got.status == 0 || strings.Contains(got.stdout, greeting) {
					t.Errorf("something else than the variable led it out: %+v", got)
				}
			})
		}
	})
}

func TestJavaReachesGrantedHosts(t *testing.T) {
	testenv.Requires(t, testenv.Program("javac"), testenv.Program("java"))
	atSite(t, func(t *testing.T, s *site) {
		s.greet()
		compile := exec.Command("javac", "-d", s.dir, s.program(t, "Fetch.java"))
		if out, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		c := fetching("captured", "java", "-cp", ".", "Fetch")
		s.tries(t, c, false)
		// Java knows no variables but its own, which is set where nothing is
		// captured.
		c.name, c.network = "told of the proxy", `"transparent": false, "allowedDomains": ["`+grantedHost+`"]`
		s.tries(t, c, true)
	})
}

// goClientVariable makes the test binary a program that fetches its arguments.
const goClientVariable = "BAILEY_TEST_FETCH"

func TestGoProgramsReachGrantedHosts(t *testing.T) {
	if os.Getenv(goClientVariable) != "" {
		fetchAndPrint(t, os.Args[2:])
		return
	}
	atSite(t, func(t *testing.T, s *site) {
		s.greet()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		s.see = append(s.see, self)
		s.vars[goClientVariable] = "1"
		s.reaches(t, fetching("net/http", self, "-test.run=^"+t.Name()+"$"))
	})
}

func fetchAndPrint(t *testing.T, urls []string) {
	for _, url := range urls {
		answer, err := http.Get(url)
		if err != nil {
			t.Error(err)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Error(err, answer.Status, string(body))
		}
		fmt.Printf("%s: %s\n", url, body)
	}
}
