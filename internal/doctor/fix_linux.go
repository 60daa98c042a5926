package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// System is what a fix changes.
type System struct {
	// Root stands before every path; empty for the machine itself.
	Root string
	// Run runs a program.
	Run func(argv ...string) error
	// Bailey is the path of the command.
	Bailey string
}

// Remedy is a change to the machine that mends something.
type Remedy struct {
	// Text says what is changed and why.
	Text string
	// Files are written, whole.
	Files map[string]string
	// Sysctls are set at once; a file among Files sets them at the next start.
	Sysctls map[string]string
	// Argv is run at the end, if it is not nil.
	Argv []string
}

const (
	sysctlFile   = "/etc/sysctl.d/60-bailey.conf"
	apparmorFile = "/etc/apparmor.d/bailey"
	limitsFile   = "/etc/security/limits.d/bailey.conf"
)

// switches are settings that keep sandboxes from being built, and what they should
// be.
var switches = []struct{ name, bad, good string }{
	{usersSwitch, "0", "1"},
	{"user.max_user_namespaces", "0", "15000"},
	{"user.max_mnt_namespaces", "0", "15000"},
	{"user.max_pid_namespaces", "0", "15000"},
	{"user.max_net_namespaces", "0", "15000"},
	{"user.max_ipc_namespaces", "0", "15000"},
	{"user.max_uts_namespaces", "0", "15000"},
	{"user.max_cgroup_namespaces", "0", "15000"},
	{"vm.memfd_noexec", "2", "1"},
}

// Switches that bind every user but root.
const (
	usersSwitch    = "kernel.unprivileged_userns_clone"
	apparmorSwitch = "kernel.apparmor_restrict_unprivileged_userns"
)

// Remedies are the changes that would mend what a report found, as far as that can
// be done by writing files. Some switches do not bind root, whose report says
// nothing about them: they are mended for the others, whatever it says.
func (s *System) Remedies(r *Report) []Remedy {
	const root = 0
	if r.Full && r.User != root {
		return nil
	}
	var list []Remedy
	wrong := map[string]string{}
	for _, w := range switches {
		if s.read(sysctlPath(w.name)) == w.bad && (!r.Full || w.name == usersSwitch) {
			wrong[w.name] = w.good
		}
	}
	if s.read(sysctlPath(apparmorSwitch)) == "1" && (!r.holds("native") || r.User == root && !s.hasProfile()) {
		if s.read("/sys/kernel/security/apparmor/profiles") != "" || s.exists("/etc/apparmor.d") {
			list = append(list, s.apparmor())
		} else {
			wrong[apparmorSwitch] = "0"
		}
	}
	if len(wrong) > 0 {
		list = append(list, sysctlRemedy(wrong))
	}
	for _, c := range r.Checks {
		if c.Name == "open files" && !c.OK {
			list = append(list, Remedy{
				Text:  "raise the limit of open files for everybody, from the next login on",
				Files: map[string]string{limitsFile: "* soft nofile 1024\n* hard nofile 524288\n"},
			})
		}
	}
	return list
}

// apparmor is a profile that confines nothing and allows namespaces, as the system
// has for browsers.
func (s *System) apparmor() Remedy {
	dir := filepath.Dir(s.Bailey)
	text := "# Lets Bailey make user namespaces.\nabi <abi/4.0>,\ninclude <tunables/global>\n\n" +
		"profile bailey \"" + dir + "/bailey{,d}\" flags=(unconfined) {\n  userns,\n  include if exists <local/bailey>\n}\n"
	return Remedy{
		Text:  "give the programs in " + dir + " an AppArmor profile that lets them make user namespaces",
		Files: map[string]string{apparmorFile: text},
		Argv:  []string{"apparmor_parser", "-r", s.Root + apparmorFile},
	}
}

// hasProfile says whether the profile is there already.
func (s *System) hasProfile() bool {
	return s.read(apparmorFile) == strings.TrimSpace(s.apparmor().Files[apparmorFile])
}

func sysctlRemedy(wrong map[string]string) Remedy {
	var lines, names []string
	for _, w := range append(switches, struct{ name, bad, good string }{apparmorSwitch, "1", "0"}) {
		if good, ok := wrong[w.name]; ok {
			lines = append(lines, w.name+" = "+good+"\n")
			names = append(names, w.name+"="+good)
		}
	}
	return Remedy{
		Text:    "set " + strings.Join(names, ", "),
		Files:   map[string]string{sysctlFile: "# What Bailey needs to build sandboxes.\n" + strings.Join(lines, "")},
		Sysctls: wrong,
	}
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// Apply makes a change.
func (s *System) Apply(r Remedy) error {
	for name, text := range r.Files {
		if err := s.write(name, text); err != nil {
			return err
		}
	}
	for name, value := range r.Sysctls {
		if err := os.WriteFile(s.Root+sysctlPath(name), []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	if r.Argv == nil {
		return nil
	}
	if err := s.Run(r.Argv...); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(r.Argv, " "), err)
	}
	return nil
}

// write replaces a file, so that nobody reads half of one.
func (s *System) write(name, text string) error {
	path := s.Root + name
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	if err := sync(path + ".new"); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return sync(filepath.Dir(path))
}

// sync waits until a file, or the names in a directory, are on the disk.
func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func (s *System) read(name string) string { return read(s.Root + name) }

func (s *System) exists(name string) bool {
	_, err := os.Stat(s.Root + name)
	return !errors.Is(err, os.ErrNotExist)
}
