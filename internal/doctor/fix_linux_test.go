package doctor

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// machine is a root directory with settings of the kernel.
func machine(t *testing.T, files map[string]string) *System {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &System{Root: root, Bailey: "/opt/bailey/bailey"}
}

func TestSettingsAreMended(t *testing.T) {
	s := machine(t, map[string]string{
		"proc/sys/kernel/unprivileged_userns_clone": "0\n",
		"proc/sys/user/max_user_namespaces":         "0\n",
		"proc/sys/user/max_net_namespaces":          "63000\n",
		"proc/sys/vm/memfd_noexec":                  "2\n",
	})
	list := s.Remedies(&Report{})
	if len(list) != 1 {
		t.Fatalf("got %+v", list)
	}
	if err := s.Apply(list[0]); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"/proc/sys/kernel/unprivileged_userns_clone": "1",
		"/proc/sys/user/max_user_namespaces":         "15000",
		"/proc/sys/user/max_net_namespaces":          "63000",
		"/proc/sys/vm/memfd_noexec":                  "1",
		sysctlFile: "# What Bailey needs to build sandboxes.\nkernel.unprivileged_userns_clone = 1\n" +
			"user.max_user_namespaces = 15000\nvm.memfd_noexec = 1",
	} {
		if got := s.read(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if list := s.Remedies(&Report{}); len(list) != 0 {
		t.Errorf("afterwards there is still %+v to do", list)
	}
}

func TestAppArmorGetsAProfile(t *testing.T) {
	s := machine(t, map[string]string{
		"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
		"etc/apparmor.d/README":                                 "",
	})
	var ran []string
	s.Run = func(argv ...string) error { ran = argv; return nil }
	list := s.Remedies(&Report{})
	if len(list) != 1 {
		t.Fatalf("got %+v", list)
	}
	if err := s.Apply(list[0]); err != nil {
		t.Fatal(err)
	}
	profile := s.read(apparmorFile)
	for _, want := range []string{`profile bailey "/opt/bailey/bailey{,d}" flags=(unconfined) {`, "\n  userns,\n"} {
		if !strings.Contains(profile, want) {
			t.Errorf("%q is missing in:\n%s", want, profile)
		}
	}
	if want := []string{"apparmor_parser", "-r", s.Root + apparmorFile}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	s.Run = func(...string) error { return errors.New("no AppArmor") }
	if err := s.Apply(list[0]); err == nil || !strings.Contains(err.Error(), "no AppArmor") {
		t.Errorf("a parser that fails is %v", err)
	}
}

func TestWithoutProfilesTheSwitchIsTurned(t *testing.T) {
	s := machine(t, map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"})
	list := s.Remedies(&Report{})
	if len(list) != 1 || list[0].Sysctls[apparmorSwitch] != "0" {
		t.Fatalf("got %+v", list)
	}
}

func TestLimitOfFilesIsRaised(t *testing.T) {
	s := machine(t, nil)
	list := s.Remedies(&Report{Checks: []Check{{Name: "open files"}}})
	if len(list) != 1 || s.Apply(list[0]) != nil || !strings.Contains(s.read(limitsFile), "hard nofile") {
		t.Errorf("got %+v, file %q", list, s.read(limitsFile))
	}
}

func TestNothingIsMendedWhereAllIsWell(t *testing.T) {
	s := machine(t, map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n", "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"})
	if list := s.Remedies(&Report{Full: true, User: 1000}); len(list) != 0 {
		t.Errorf("got %+v", list)
	}
}

// What binds users alone is not in a report of root's.
func TestUsersAreMendedForWhereRootHasAll(t *testing.T) {
	s := machine(t, map[string]string{
		"proc/sys/kernel/unprivileged_userns_clone":             "0\n",
		"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
		"etc/apparmor.d/README":                                 "",
	})
	s.Run = func(...string) error { return nil }
	full := &Report{Full: true, Runtimes: []Runtime{{Name: "native", Holds: true, Runs: true}}}
	list := s.Remedies(full)
	if len(list) != 2 {
		t.Fatalf("got %+v", list)
	}
	for _, r := range list {
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.read("/proc/sys/kernel/unprivileged_userns_clone"); got != "1" {
		t.Errorf("the switch is %q", got)
	}
	if list := s.Remedies(full); len(list) != 0 {
		t.Errorf("afterwards there is still %+v to do", list)
	}
}

func TestUnderSudoTheUserIsExamined(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.UserNamespaces, testenv.Landlock(6))
	s, err := caller(0, func(string) string { return "65534" })
	if err != nil || s.uid != 65534 || len(s.groups) == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	for name, env := range map[string]string{"root": "0", "nobody in particular": ""} {
		if s, err := caller(0, func(string) string { return env }); s != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if s, err := caller(1000, func(string) string { return "65534" }); s != nil || err != nil {
		t.Errorf("not root: %+v, %v", s, err)
	}
	if _, err := caller(0, func(string) string { return "4000000" }); err == nil || !strings.Contains(err.Error(), "env -u SUDO_UID") {
		t.Errorf("a user that does not exist: %v", err)
	}
	cmd := exec.Command(testenv.Binary(t, "baileyd"), "doctor", "--fix")
	cmd.Env = append(os.Environ(), "SUDO_UID=65534")
	out, err := cmd.CombinedOutput()
	if !strings.HasPrefix(string(out), "Examined for nobody, who called sudo.\n") || !strings.Contains(string(out), ", user 65534\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestOnlyAYesIsAYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "yes\n": true, "y": true, "": false, "\n": false, "n\n": false, "yesterday\n": false} {
		var out bytes.Buffer
		r := Remedy{Text: "set something", Files: map[string]string{"/etc/x": "a\nb\n"}}
		if got := confirm(r, bufio.NewReader(strings.NewReader(answer)), &out); got != want {
			t.Errorf("%q: got %v", answer, got)
		}
		if !strings.Contains(out.String(), "/etc/x would be:\n    a\n    b\nDo it? [y/N] ") {
			t.Errorf("asked %q", out.String())
		}
	}
}

// On a machine of its own: a user namespace, whose limits are its own.
func TestFixWorks(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"), testenv.Landlock(6), testenv.Root)
	line := `echo 0 >/proc/sys/user/max_net_namespaces && mount -t tmpfs none /etc/sysctl.d && printf "$1" | "$2" doctor --fix; status=$?; cat /etc/sysctl.d/60-bailey.conf; exit $status`
	for answer, want := range map[string]int{`y\n`: 0, `n\n`: 1} {
		cmd := exec.Command("unshare", "-Urm", "sh", "-c", line, "sh", answer, testenv.Binary(t, "bailey"))
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q: status %d, want %d\n%s", answer, got, want, out)
		}
		if has := strings.Contains(string(out), "\nuser.max_net_namespaces = 15000\n"); has != (want == 0) {
			t.Errorf("%q: the file:\n%s", answer, out)
		}
	}
}
