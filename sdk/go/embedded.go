package sdk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// embedded is a server of this program. It ends when its standard input does, so
// that it also ends if this program is killed.
type embedded struct {
	address string
	command *exec.Cmd
	stdin   io.Closer
}

var errNoServer = errors.New("sdk: there is no server to use, and no program baileyd to start one: install Bailey, or set BAILEY_ADDRESS")

func startEmbedded() (*embedded, error) {
	program := os.Getenv("BAILEYD")
	if program == "" {
		var err error
		if program, err = exec.LookPath("baileyd"); err != nil {
			return nil, errNoServer
		}
	}
	e := &embedded{command: exec.Command(program, "serve", "--ephemeral", "--log-level", "error")}
	e.command.Stderr = os.Stderr
	stdin, err := e.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	e.stdin = stdin
	stdout, err := e.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := e.command.Start(); err != nil {
		return nil, fmt.Errorf("sdk: start a server: %w", err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			e.address = address
		}
		if lines.Text() == "ready" && e.address != "" {
			return e, nil
		}
	}
	err = e.close()
	return nil, fmt.Errorf("sdk: the server that was started has ended: %w; see: bailey doctor", errors.Join(err, io.ErrUnexpectedEOF))
}

// close ends the server and everything in it, and waits for that.
func (e *embedded) close() error {
	return errors.Join(e.stdin.Close(), e.command.Wait())
}
