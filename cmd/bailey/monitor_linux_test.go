package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// inHome writes a file below the home directory.
func (b *bench) inHome(name, content string) string {
	b.t.Helper()
	path := filepath.Join(b.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

var processNumber = regexp.MustCompile(`\[\d+\]`)

// monitored returns the lines of stderr that are Bailey's, without numbers.
func monitored(stderr string) []string {
	var out []string
	for line := range strings.Lines(stderr) {
		if text, ok := strings.CutPrefix(line, "bailey: "); ok {
			out = append(out, processNumber.ReplaceAllString(strings.TrimSuffix(text, "\n"), ""))
		}
	}
	return out
}

// fixOf is the text if this user may write a file, and nothing otherwise.
func fixOf(path, text string) string {
	if unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) != nil {
		return ""
	}
	return text
}

// advised is the last line for a file that only has to be writable.
func advised(path string) []string {
	if text := fixOf(path, "to allow what was not granted: --allow-write "+path); text != "" {
		return []string{text}
	}
	return nil
}

func TestMonitorTellsWhatIsNotGranted(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	data := b.inHome("data/a", "a")
	hidden := b.write("hidden", "", 0o644)
	b.write(".mcp.json", "{}", 0o644)
	shown := b.inHome("shown/a", "a")
	for _, c := range []struct {
		name, line string
		status     int
		want       []string
	}{
		{"nothing", "true", 0, nil},
		{"probing", "cat " + b.home + "/nothing /no/such 2>/dev/null; command -v no-such-program; exit 4", 4, nil},
		{"reading, twice", "cat " + data + "; cat " + data + "; exit 3", 3, []string{
			"cat open " + data + " (not granted); to allow: --allow-read " + data,
			"cat open " + data + " (not granted), 2 times",
			"to allow what was not granted: --allow-read " + data,
		}},
		{"writing what can be read", "echo >/usr/new; exit 0", 0, []string{"sh create /usr/new (only reading is granted)" + fixOf("/usr", "; to allow: make it outside first, and then --allow-write /usr/new")}},
		{"writing what the user may not write", "echo >/etc/hostname; exit 0", 0, append([]string{
			"sh create /etc/hostname (only reading is granted)" + fixOf("/etc/hostname", "; to allow: --allow-write /etc/hostname"),
		}, advised("/etc/hostname")...)},
		{"a denial of the broker", "echo >.envrc; exit 0", 0, []string{"sh create .envrc (protected name); to allow: --allow-write .envrc"}},
		{"what mounts and the broker protect", "echo >.mcp.json; rm -f .mcp.json; exit 0", 0, []string{
			"sh create .mcp.json (protected .mcp.json); to allow: --allow-write .mcp.json",
			"rm remove .mcp.json (protected .mcp.json); to allow: --allow-write .mcp.json",
		}},
		{"what is hidden", "cat hidden; ls -l >/dev/null", 0, []string{"cat open hidden (filesystem.denyRead " + hidden + ")"}},
		{"attributes of what can be read", "chmod 600 " + shown + "; exit 0", 0, []string{
			"chmod change " + shown + " (only reading is granted); to allow: --allow-write " + shown,
			"to allow what was not granted: --allow-write " + shown,
		}},
		{"attributes of what can be written", "echo >new; chmod 600 new; touch -d @1 new; chown --reference=new new; rm new", 0, nil},
		{"removing what can be read", "rm -f " + shown + "; exit 0", 0, []string{
			"rm remove " + shown + " (only reading is granted); to allow: --allow-write " + filepath.Dir(shown),
			"to allow what was not granted: --allow-write " + filepath.Dir(shown),
		}},
		{"what is granted", "cat /etc/passwd >new; rm new; ls -la /etc >/dev/null 2>&1; : >/tmp/x; : >$HOME/.rc", 0, nil},
	} {
		got := b.run("-m", "--deny-read", hidden, "--allow-read", shown, "--shell", "sh", "-c", c.line)
		if lines := monitored(got.stderr); got.status != c.status || !slices.Equal(lines, c.want) {
			t.Errorf("%s: status %d, got  %q\nwant %d, %q", c.name, got.status, lines, c.status, c.want)
		}
	}
}

func TestMonitorFoldsItsAdvice(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		b.inHome("data/"+name, "")
	}
	b.inHome(".aws/credentials", "")
	dir := filepath.Join(b.home, "data")
	got := b.run("-m", "-c", "cd /; cat "+dir+"/a "+dir+"/b "+dir+"/c "+dir+"/d ~/.aws/credentials 2>/dev/null; :")
	lines := monitored(got.stderr)
	want := "to allow what was not granted: --allow-read " + dir
	if len(lines) != 6 || lines[len(lines)-1] != want {
		t.Errorf("got %q, want five events and %q", lines, want)
	}
}

func TestMonitorWritesJSON(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	data, twice := b.inHome("data", ""), b.inHome("twice", "")
	got := b.run("-m", "--json", "-c", "for i in 1 2 3; do cat ~/data 2>/dev/null; done; : 2>/dev/null >.envrc; cat ~/twice ~/twice 2>/dev/null; exit 7")
	if strings.Contains(got.stderr, `"count":1}`) || strings.Contains(got.stderr, `"count":1,`) {
		t.Errorf("a count of one is written: %s", got.stderr)
	}
	if got.status != 7 {
		t.Errorf("status %d, want 7", got.status)
	}
	counts := map[string]int{}
	for line := range strings.Lines(got.stderr) {
		e, err := event.Decode([]byte(line))
		if err != nil {
			t.Errorf("%v: %q", err, line)
			continue
		}
		switch {
		case e.Kind == event.Exec:
			counts["exec "+strings.Join(e.Argv, " ")]++
		case e.Kind == event.Exit && e.Status != nil && *e.Status == 7 && e.Duration > 0:
			counts["exit "+e.Process]++
		default:
			counts[string(e.Op)+" "+e.Path] += max(e.Count, 1)
		}
	}
	for what, want := range map[string]int{"exec cat " + data: 3, "exit bash": 1, "open " + twice: 2, "open " + data: 3, "create " + filepath.Join(b.dir, ".envrc"): 1} {
		if counts[what] != want {
			t.Errorf("%s: got %d, want %d, in %s", what, counts[what], want, got.stderr)
		}
	}
	b.run("--json", "true").wantError(t, "--json goes with --monitor")
}

func TestMonitorLeavesATerminalAlone(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	b := newBench(t)
	b.inHome("data", "")
	b.env = append(b.env, "NO_COLOR=1")
	s := openScreen(t)
	s.start(b.command("-m", "-c", "cat ~/data 2>/dev/null; echo one; echo two"))
	s.expect("one\r\ntwo\r\nbailey: cat[")
	s.expect("(not granted); to allow: --allow-read ")

	s = openScreen(t)
	cmd := b.command("-m", "-c", "cat ~/data 2>/dev/null; read x; echo got $x")
	errors, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.start(cmd)
	// It comes although the command still waits.
	buf := make([]byte, 4096)
	n, err := errors.Read(buf)
	if text := string(buf[:n]); err != nil || !strings.Contains(text, "(not granted)") {
		t.Errorf("stderr %q, error %v", text, err)
	}
	if _, err := s.master.WriteString("x\n"); err != nil {
		t.Fatal(err)
	}
	s.expect("got x")
}
