package doctor

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tryRuntimes runs a command under the default policy, with each of the runtimes.
func (d *doctor) tryRuntimes() {
	for _, name := range []string{"native", "landlock"} {
		r := Runtime{Name: name}
		says, err := d.tryRuntime(name)
		if r.Holds = err == nil; !r.Holds {
			r.Says = says
		}
		d.report.Runtimes = append(d.report.Runtimes, r)
	}
}

// tryRuntime has the command bailey run this program, which surely exists, in a
// directory that is nobody's project.
func (d *doctor) tryRuntime(name string) (says string, err error) {
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
	cmd := exec.Command(d.bailey, "--quiet", "--runtime", name, "--policy", "{}", "--dir", dir, "--allow-read", self,
		"--", self, ProbeWord, "work")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err = cmd.Run(); err != nil && stderr.Len() == 0 {
		stderr.WriteString(err.Error())
	}
	return strings.ReplaceAll(stderr.String(), "bailey: ", ""), err
}
