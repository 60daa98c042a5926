// Command bailey-server is the server: sandboxes as a service. It is what
// "baileyd serve", "baileyd token", "baileyd status" and "baileyd load" become. It
// is a program of its own because what it links would slow down every start of
// baileyd, which keeps sandboxes that stay and hands others over to their engines.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/version"
)

const help = `bailey-server serves sandboxes to programs. Start it as "baileyd serve".

  baileyd serve       serve the API
  baileyd token       create, list and revoke tokens
  baileyd status      what a server on this machine does
  baileyd load        measure a server

Each says more with --help.
`

// Exit status for every error of Bailey's own.
const exitOwn = 125

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := dispatch(args, stdin, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	}
	fmt.Fprintln(stderr, "baileyd: "+err.Error())
	return exitOwn
}

func dispatch(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	word := ""
	if len(args) > 0 {
		word, args = args[0], args[1:]
	}
	switch word {
	case "serve":
		return serve(args, stdin, stdout, stderr)
	case "token":
		return tokens(args, stdout, stderr)
	case "status":
		return status(args, stdout)
	case "load":
		return measure(args, stdout, stderr)
	case "-v", "--version", "version":
		_, err := io.WriteString(stdout, version.Line("bailey-server"))
		return err
	case "-h", "--help", "help":
		_, err := io.WriteString(stdout, help)
		return err
	}
	return errors.New("there is serve, token, status and load; see: baileyd serve --help")
}

// newFlags returns a set of flags that leaves talking to the caller.
func newFlags(name, usage string, stdout io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {
		f.SetOutput(stdout)
		fmt.Fprint(stdout, usage)
		f.PrintDefaults()
		f.SetOutput(io.Discard)
	}
	return f
}

// parse reads flags, and refuses what is left over.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w; see: baileyd %s --help", err, f.Name())
	}
	return nil
}

// stateFlag is where a server keeps what it must not forget.
func stateFlag(f *flag.FlagSet) *string {
	return f.String("state", defaultState(), "the server's `directory`")
}

func defaultState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/bailey/server"
	}
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "bailey", "server")
}

// absolute returns the state directory as the server wants it.
func absolute(state string) (string, error) {
	if state == "" {
		return "", errors.New("there is no home directory to keep anything in: say where with --state")
	}
	return filepath.Abs(state)
}

// database is the file of the store.
func database(state string) string { return filepath.Join(state, "server.db") }

// socket is where the user's own programs reach the server.
func socket(state string) string { return filepath.Join(state, "server.sock") }
