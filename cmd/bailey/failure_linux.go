package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/host"
	"github.com/bailey-sandbox/bailey/internal/policy"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// explainLaunch names the cause of a refused step, and what to do about it.
func explainLaunch(e *native.LaunchError) {
	say(tagError, "the wall that is missing: "+string(e.Wall)+"; nothing ran")
	explain(diagnose(e))
}

// explain says what is known of a cause, and what mends it.
func explain(d host.Diagnosis) {
	if d.Cause != "" {
		say(tagError, "cause: "+d.Cause)
	}
	if d.Fix != "" {
		say(tagError, "fix: "+d.Fix)
	}
}

func diagnose(e *native.LaunchError) host.Diagnosis {
	return host.Diagnose(host.Failure{Wall: string(e.Wall), Step: e.Step, Errno: e.Errno})
}

// explainExec says why a program could not be started, as a shell would, and
// whether the sandbox is the reason.
func explainExec(s *spec.Spec, e *native.ExecError) int {
	name := printable(e.Name)
	if e.Errno != unix.ENOENT && e.Errno != unix.ENOTDIR {
		text := name + ": " + e.Errno.Error()
		if e.Errno == unix.ENOEXEC {
			text += "; if it is a script without a #! line: bailey -- sh " + name
		}
		say(tagError, text)
		return exitNotRunnable
	}
	say(tagError, name+": "+absence(s, e.Name))
	return exitNotFound
}

// agentNames are the names of all agents.
func agentNames() []string {
	return slices.DeleteFunc(slices.Clone(policy.PresetNames()), func(name string) bool { return !isAgent(name) })
}

// absence says why a program is not there.
func absence(s *spec.Spec, name string) string {
	if s.Image != nil {
		return "not found in the image " + printable(s.Image.Name)
	}
	path := name
	if !strings.Contains(name, "/") {
		if path = lookPath(name); path != "" && !slices.Contains(s.Exec, path) {
			return "not found in the PATH of the sandbox"
		}
	} else if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	if path == "" {
		if near := policy.Nearest(name, verbNames()); near != "" && len(name) > 3 {
			return "command not found; did you mean the verb " + near + "?"
		}
		if near := policy.Nearest(name, agentNames()); near != "" && len(name) > 3 {
			return "command not found; did you mean the agent " + near + "?"
		}
		return "command not found"
	}
	if _, err := os.Stat(path); err != nil {
		return "no such file or directory"
	}
	if hidden := firstHidden(s, path); hidden != "" {
		return notVisible(hidden)
	}
	if program := interpreter(path); program != "" {
		if _, err := os.Stat(program); err != nil {
			return "its interpreter " + printable(program) + " does not exist"
		}
		if hidden := firstHidden(s, program); hidden != "" {
			return "its interpreter " + notVisible(hidden)
		}
	}
	return "exists, but something it needs to start (a loader, an interpreter) is not visible in the sandbox"
}

// notVisible names the directory to grant, since few programs are one file; but
// not the home directory, which is far more than the program.
func notVisible(path string) string {
	grant := filepath.Dir(path)
	if grant == filepath.Clean(os.Getenv("HOME")) {
		grant = path
	}
	return "exists on the host at " + printable(path) + " but is not visible in the sandbox; --allow-read " + printable(grant)
}

// firstHidden follows a path's links and returns the first file on the way
// that the sandbox does not show, or "".
func firstHidden(s *spec.Spec, path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	for _, p := range []string{real, path} {
		_, m := s.Access(p)
		if m == nil || m.Kind == spec.Hide || m.Kind == spec.Dir || m.Kind == spec.Tmpfs {
			return p
		}
	}
	return ""
}

// interpreter returns the program that a script's first line names, or "".
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // a short file has a short first line
	line, ok := bytes.CutPrefix(head[:n], []byte("#!"))
	if !ok {
		return ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return ""
	}
	return words[0]
}
