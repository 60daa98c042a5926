// Command baileyd keeps sandboxes that stay. The command bailey starts it when
// the first one is wanted, and it ends with the last. It is also where verbs of
// the command are that need more than a command should link.
package main

import (
	"io"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/doctor"
	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `baileyd keeps sandboxes that stay between commands. There is nothing to start
by hand: the command bailey does, for the first "bailey --keep NAME -- CMD".

  baileyd serve       serve sandboxes to programs, over an API
  baileyd token       create, list and revoke tokens for it
  baileyd status      what that server does
  baileyd load        measure such a server
  baileyd keeper      keep sandboxes, for who hands over a socket
  baileyd doctor      what "bailey doctor" runs
  baileyd box top     what "bailey box top" shows on a terminal
  baileyd ws          what "bailey ws" runs
  baileyd codebase    what "bailey codebase" runs
  baileyd image       what "bailey image" runs
  baileyd --version   print the version
  baileyd --help      print this text
`

// Exit status for every error of Bailey's own.
const exitOwn = 125

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "bench" {
		return runBench(args[1:], stdout, stderr)
	}
	if is, err := becomeServer(args); is {
		return report(stderr, err)
	}
	if len(args) == 2 && args[0] == "box" && args[1] == "top" {
		return boxTop(stderr)
	}
	if len(args) > 0 && args[0] == "ws" {
		return runWorkspaces(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "codebase" {
		return runCodebases(args[1:], os.Stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == "image" {
		return runImages(args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "doctor" {
		return doctor.Main(args[1:], os.Stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == doctor.ProbeWord {
		return doctor.Probe(args[1:], stdout)
	}
	if is, err := showViews(args); is {
		return report(stderr, err)
	}
	if len(args) == 1 && args[0] == "keeper" {
		return report(stderr, keep(""))
	}
	if len(args) == 2 && args[0] == "keeper" && filepath.IsAbs(args[1]) {
		return report(stderr, keep(args[1]))
	}
	word := ""
	if len(args) == 1 {
		word = args[0]
	}
	switch word {
	case "-v", "--version", "version":
		return answer(stdout, version.Line("baileyd"), 0)
	case "-h", "--help", "help":
		return answer(stdout, help, 0)
	}
	return answer(stderr, "baileyd: there is nothing to start by hand; see: baileyd --help\n", exitOwn)
}

// report is the exit status for an error, which is told.
func report(stderr io.Writer, err error) int {
	if err != nil {
		return answer(stderr, "baileyd: "+err.Error()+"\n", exitOwn)
	}
	return 0
}

func answer(to io.Writer, text string, status int) int {
	if _, err := io.WriteString(to, text); err != nil {
		return exitOwn
	}
	return status
}
