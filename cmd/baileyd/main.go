// Command baileyd keeps sandboxes that stay. The command bailey starts it when
// the first one is wanted, and it ends with the last. It is also where verbs of
// the command are that need more than a command should link.
package main

import (
	"io"
	"os"

	"github.com/bailey-sandbox/bailey/internal/doctor"
	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `baileyd keeps sandboxes that stay between commands. There is nothing to start
by hand: the command bailey does, for the first "bailey --keep NAME -- CMD".

  baileyd keeper      keep sandboxes, for who hands over a socket
  baileyd doctor      what "bailey doctor" runs
  baileyd box top     what "bailey box top" shows on a terminal
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
	if len(args) == 2 && args[0] == "box" && args[1] == "top" {
		return boxTop(stderr)
	}
	if len(args) > 0 && args[0] == "doctor" {
		return doctor.Main(args[1:], os.Stdin, stdout, stderr)
	}
	if len(args) > 0 && args[0] == doctor.ProbeWord {
		return doctor.Probe(args[1:], stdout)
	}
	word := ""
	if len(args) == 1 {
		word = args[0]
	}
	switch word {
	case "keeper":
		if err := keep(); err != nil {
			return answer(stderr, "baileyd: "+err.Error()+"\n", exitOwn)
		}
		return 0
	case "-v", "--version", "version":
		return answer(stdout, version.Line("baileyd"), 0)
	case "-h", "--help", "help":
		return answer(stdout, help, 0)
	}
	return answer(stderr, "baileyd: there is nothing to start by hand; see: baileyd --help\n", exitOwn)
}

func answer(to io.Writer, text string, status int) int {
	if _, err := io.WriteString(to, text); err != nil {
		return exitOwn
	}
	return status
}
