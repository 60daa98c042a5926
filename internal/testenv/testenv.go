// Package testenv lets a test name what it needs from the machine. A test whose
// requirement is missing is skipped with the requirement's name, and the test
// run fails if no other run, as another user or without the race detector, has
// it either: see package testreport.
package testenv

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// SkipPrefix starts the message of every skip this package causes. The names of
// the missing requirements follow, separated by commas.
const SkipPrefix = "requires: "

// Requirement is something a machine or a test run has or lacks.
type Requirement struct {
	name string
	met  func() bool
}

// String is the name that a skipped test reports.
func (r Requirement) String() string { return r.name }

var (
	// Root is met when the test runs as root.
	Root = Requirement{RootName, func() bool { return os.Geteuid() == 0 }}
	// Unprivileged is met when the test does not run as root.
	Unprivileged = Requirement{"unprivileged", func() bool { return os.Geteuid() != 0 }}
	// Long is met in a long run (scripts/test --long).
	Long = Requirement{LongName, long}
	// NoRace is met without the race detector, which cannot follow a child that
	// shares memory with its parent, changes the resource use that is measured,
	// and has nothing to see where programs work that were built without it:
	// long tests of these need not run with it, too.
	NoRace = Requirement{"no race detector", func() bool { return !raceEnabled }}
	// Modules is met when the go command can load this module and everything it
	// depends on without a network.
	Modules = Requirement{"go modules", modules}
	// UserNamespaces is met when this user can make a user namespace.
	UserNamespaces = Requirement{"user namespaces", userNamespaces}
)

// Names of requirements that package testreport treats by name.
const (
	RootName       = "root"
	LongName       = "long"
	LandlockPrefix = "landlock "
)

// Landlock is met when the kernel has at least this Landlock interface.
func Landlock(abi int) Requirement {
	return Requirement{LandlockPrefix + strconv.Itoa(abi), func() bool { return LandlockABI() >= abi }}
}

// Program is met when the program is found on PATH.
func Program(name string) Requirement {
	return Requirement{"program " + name, func() bool {
		_, err := exec.LookPath(name)
		return err == nil
	}}
}

// File is met when the file exists, such as the header of a C library.
func File(name string) Requirement {
	return Requirement{"file " + name, func() bool {
		_, err := os.Stat(name)
		return err == nil
	}}
}

// Requires skips the test unless every requirement is met, and names all that
// are not.
func Requires(t testing.TB, requirements ...Requirement) {
	t.Helper()
	if missing := unmet(requirements); len(missing) > 0 {
		t.Skip(SkipPrefix + strings.Join(missing, ", "))
	}
}

// Count is the number of repetitions of a random test: few in an ordinary run,
// many in a long one.
func Count(ordinary, inLongRun int) int {
	if long() {
		return inLongRun
	}
	return ordinary
}

func unmet(requirements []Requirement) []string {
	var names []string
	for _, r := range requirements {
		if !r.met() {
			names = append(names, r.name)
		}
	}
	return names
}

func long() bool { return os.Getenv("BAILEY_LONG") == "1" }

var modules = sync.OnceValue(func() bool {
	root, err := moduleRoot()
	if err != nil {
		return false
	}
	list := exec.Command("go", "list", "-deps", "./...")
	list.Dir = root
	list.Env = append(os.Environ(), "GOPROXY=off")
	return list.Run() == nil
})
