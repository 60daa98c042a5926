package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// explainProgram says which file a command would execute or, in the words of a
// run, why there is none.
func explainProgram(s *spec.Spec) string {
	if s.Image != nil {
		return "" // its files are not where they are inside
	}
	name, denied := s.Argv[0], ""
	for _, file := range s.Exec {
		if !filepath.IsAbs(file) {
			file = filepath.Join(s.Dir, file)
		}
		info, err := os.Stat(file)
		if err != nil || firstHidden(s, file) != "" {
			continue
		}
		switch {
		case info.IsDir():
			denied = cmp.Or(denied, printable(file)+": is a directory")
		case !executable(file):
			denied = cmp.Or(denied, printable(file)+": permission denied; if it is a program: chmod +x "+printable(file))
		case !mayExecute(s, file):
			denied = cmp.Or(denied, printable(file)+": permission denied; filesystem.allowExecute does not name it")
		case startsInside(s, file):
			return printable(file)
		}
	}
	if denied != "" {
		return denied
	}
	text := printable(name) + ": " + absence(s, name)
	if strings.Contains(name, "/") {
		return text
	}
	if path := lookPath(name); path != "" && !slices.Contains(s.Exec, path) {
		text += ", which env.set replaces; the host has it at " + printable(path)
	}
	return text + "\nlooked for in " + printable(strings.Join(searched(s), " "))
}

// startsInside says whether the sandbox shows what a script is run by.
func startsInside(s *spec.Spec, file string) bool {
	program := interpreter(file)
	if program == "" {
		return true
	}
	_, err := os.Stat(program)
	return err == nil && firstHidden(s, program) == ""
}

// mayExecute asks the second wall.
func mayExecute(s *spec.Spec, file string) bool {
	real, err := filepath.EvalSymlinks(file)
	return err == nil && slices.ContainsFunc(s.Landlock.Rules, func(r spec.LandlockRule) bool {
		return r.Execute && spec.Covers(r.Path, real)
	})
}

// searched are the directories of PATH inside; what the sandbox does not show
// is marked.
func searched(s *spec.Spec) []string {
	var dirs []string
	for _, v := range s.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs = filepath.SplitList(path)
		}
	}
	for i, dir := range dirs {
		if _, err := os.Stat(dir); err == nil && firstHidden(s, dir) != "" {
			dirs[i] += " (not visible)"
		}
	}
	return dirs
}
