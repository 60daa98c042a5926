package doctor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// plainPolicy asks for nothing that has to be decided while a command runs, which
// some runtimes cannot.
const plainPolicy = `{"filesystem": {"protectMissing": false}, "network": {"allowAllUnixSockets": true}}`

// tryRuntimes runs a command under the default policy, with each of the runtimes,
// and where that is refused, under one that asks for less.
func (d *doctor) tryRuntimes() {
	for _, name := range spec.Runtimes() {
		r := Runtime{Name: name}
		says, err := d.tryRuntime(name, "{}")
		if r.Holds = err == nil; !r.Holds {
			r.Says = says
			if says, err = d.tryRuntime(name, plainPolicy); err != nil {
				r.Says = says
			}
		}
		r.Runs = err == nil
		d.report.Runtimes = append(d.report.Runtimes, r)
	}
}

// tryRuntime has the command bailey run this program, which surely exists, in a
// directory that is nobody's project.
func (d *doctor) tryRuntime(name, policy string) (says string, err error) {
	if d.bailey == "" {
		return "the command bailey is not installed beside this program", errors.New("no command")
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error(), err
	}
	dir, err := os.MkdirTemp("", "bailey-doctor-")
	if err != nil {
		return err.Error(), err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err.Error(), err
	}
	// Where nothing is broken it takes a fraction of a second.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bailey, "--quiet", "--runtime", name, "--policy", policy, "--dir", dir, "--allow-read", self,
		"--", self, ProbeWord, "work")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "it did not come to an end within a minute", ctx.Err()
	case err != nil && stderr.Len() == 0:
		stderr.WriteString(err.Error())
	}
	return strings.ReplaceAll(stderr.String(), "bailey: ", ""), err
}
