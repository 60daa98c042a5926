package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/walls"
)

// launch is one launch that counts.
type launch struct {
	phases map[string]time.Duration
	out    []byte // what the probe wrote after the nonce
}

// errors of launches are told by what they are, so that they can be counted.
var errNoExit = errors.New("did not end with status 0")

// nonce is new for each launch.
func nonce() string { return "nonce-" + rand.Text() }

// calling is a way to launch: a command that has the probe at its end, on its streams.
type calling struct {
	argv []string // without the probe
	dir  string
	env  []string
	says string // on stderr, or the launch was another than it should be
}

// launch launches the probe and takes the parts apart that can be told from outside.
func (c *calling) launch(probe []string) (*launch, error) {
	word := nonce()
	cmd := c.command(append([]string{c.probe(), probeWord, word}, probe...))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	text, first, last := readTimed(out)
	err = cmd.Wait()
	end := time.Now()
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %s", errNoExit, err, lastOf(stderr.String()))
	}
	if !strings.Contains(stderr.String(), c.says) {
		return nil, errors.New("it was not launched as it should be: nothing says " + c.says)
	}
	rest, err := answer(text, word)
	if err != nil {
		return nil, err
	}
	return &launch{out: rest, phases: map[string]time.Duration{
		walls.PhaseFirstByte: first.Sub(begin), walls.PhaseExit: last.Sub(first), walls.PhaseTeardown: end.Sub(last), walls.PhaseTotal: end.Sub(begin),
	}}, nil
}

func (c *calling) command(argv []string) *exec.Cmd {
	argv = append(append([]string{}, c.argv...), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// probe is this program, where it is inside.
func (c *calling) probe() string { return c.dir + "/probe" }

// readTimed reads to the end, and says when the first byte came and when the end.
func readTimed(from io.Reader) (text []byte, first, last time.Time) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && text == nil {
			first = time.Now()
		}
		text = append(text, buf[:n]...)
		if err != nil {
			break
		}
	}
	last = time.Now()
	if text == nil {
		first = last
	}
	return text, first, last
}

// lastOf is the last line of what a program had to say.
func lastOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := lines[len(lines)-1]
	if line == "" {
		return "it says nothing"
	}
	return line[:min(len(line), 300)]
}

// idle starts the probe so that it stays, and returns the process at whose descendants to
// look, and how to end it.
func (c *calling) idle() (pid int, end func(), err error) {
	word := nonce()
	cmd := c.command([]string{c.probe(), probeWord, word, "idle"})
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	end = func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
	line := make([]byte, len(word)+1)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != word+"\n" {
		end()
		return 0, nil, fmt.Errorf("the nonce came back as %s", short(line))
	}
	return cmd.Process.Pid, end, nil
}
