package doctor

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// busybox is a program that is all of a small system.
func busybox(t *testing.T) string {
	t.Helper()
	testenv.Requires(t, testenv.File("/bin/busybox"))
	return "/bin/busybox"
}

// engine is a Docker engine of the test's own.
type engine struct {
	t      *testing.T
	socket string
}

// startEngine starts one, and ends it with the test.
func startEngine(t *testing.T) *engine {
	t.Helper()
	testenv.Requires(t, testenv.Root, testenv.NoRace, testenv.Program("dockerd"), testenv.Program("docker"), testenv.Landlock(6))
	// Sockets have short names.
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, socket: "unix://" + filepath.Join(dir, "s")}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ready, notify, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "-H", e.socket, "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs")
	daemon.Stderr = notify
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	_ = notify.Close()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(unix.SIGTERM)
		_ = daemon.Wait()
		_, _ = log.Close(), ready.Close()
		unmountBelow(dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, ready, log, "API listen on")
	return e
}

// waitFor copies what a program says until it has said something, and after that
// beside the test.
func waitFor(t *testing.T, from, to *os.File, text string) {
	t.Helper()
	var said []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(said, []byte(text)) {
		n, err := from.Read(buf)
		if err != nil {
			t.Fatalf("the engine did not start: %s", said)
		}
		said = append(said, buf[:n]...)
	}
	go func() { _, _ = to.ReadFrom(from) }()
}

// unmountBelow removes what a killed container may leave.
func unmountBelow(dir string) {
	table, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			_ = unix.Unmount(f[4], unix.MNT_DETACH)
		}
	}
}

// importImage makes an image of busybox and the programs of Bailey's.
func (e *engine) importImage(name string) {
	e.t.Helper()
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	write := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			e.t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "root", "proc", "sys", "dev"} {
		write(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
	}
	for _, dir := range []string{"tmp", "work", "home"} {
		write(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o1777}, nil)
	}
	write(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/root:/bin/sh\nu:x:1000:1000::/home:/bin/sh\n"))
	write(tar.Header{Name: "etc/secret", Mode: 0o644}, []byte("secret\n"))
	files := map[string]string{"bin/busybox": busybox(e.t)}
	for _, program := range []string{"bailey", "baileyd", "bailey-gate"} {
		files["bin/"+program] = testenv.Binary(e.t, program)
	}
	for name, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			e.t.Fatal(err)
		}
		write(tar.Header{Name: name, Mode: 0o755}, data)
	}
	for _, applet := range []string{"sh", "true", "echo", "cat", "touch", "chmod", "rm", "mv", "mkdir", "ls"} {
		write(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, nil)
	}
	if err := w.Close(); err != nil {
		e.t.Fatal(err)
	}
	cmd := exec.Command("docker", "-H", e.socket, "import", "-", name)
	cmd.Stdin = &image
	if out, err := cmd.CombinedOutput(); err != nil {
		e.t.Fatalf("import: %v: %s", err, out)
	}
}

// run is a command in a new container.
func (e *engine) run(options []string, argv ...string) *exec.Cmd {
	words := append([]string{"-H", e.socket, "run", "--rm", "--network", "none", "--workdir", "/work"}, options...)
	return exec.Command("docker", append(append(words, "bailey-test"), argv...)...)
}

func TestContainersAreDiagnosedAndHold(t *testing.T) {
	e := startEngine(t)
	e.importImage("bailey-test")
	unconfined := []string{"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined"}
	for _, c := range []struct {
		name     string
		options  []string
		failed   string // the first check that fails, of those that are required
		fix      string
		runtimes string
	}{
		{"as it comes", nil, "user namespace", strings.Join(unconfined, " "), "landlock"},
		{"as it comes, as a user", []string{"--user", "1000"}, "user namespace", "seccomp=unconfined", "landlock"},
		{"without its filter", unconfined[:2], "fresh /proc", "systempaths=unconfined", "landlock"},
		{"as doctor says", unconfined, "", "", "native landlock"},
		{"as doctor says, as a user", append(slices.Clone(unconfined), "--user", "1000"), "", "", "native landlock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := examine(t, e.run(c.options, "bailey", "doctor", "--json"))
			if d.Place != "in a container" || d.runtimes() != c.runtimes || d.Full != (c.failed == "") {
				t.Errorf("place %q, runtimes %q, full %v\n%s", d.Place, d.runtimes(), d.Full, d.text)
			}
			for _, check := range d.Checks {
				if check.OK || !check.Required {
					continue
				}
				if check.Name != c.failed || !strings.Contains(check.Fix, c.fix) {
					t.Errorf("got %+v, want %q with fix %q", check, c.failed, c.fix)
				}
				break
			}
			e.holds(t, c.options)
			e.leads(t, c.options)
		})
	}
}

// holds runs commands under the default policy, whichever runtime that takes.
func (e *engine) holds(t *testing.T, options []string) {
	t.Helper()
	lines := []struct {
		text  string
		works bool
	}{
		{"echo a >f && mkdir d && mv f d/g && chmod 600 d/g && cat d/g && rm -r d", true},
		{`echo a >"$HOME/a" && echo b >"$TMPDIR/b"`, true},
		{"echo a >.bashrc", false},
		{"echo a >/etc/passwd", false},
		{"chmod 777 /etc/secret", false},
		{"rm /etc/secret", false},
		{"echo a >/proc/sys/kernel/hostname", false},
		{"cat /proc/1/environ", false},
	}
	argv := []string{"sh", "-c", `for line; do bailey -q -- sh -c "$line" >/dev/null 2>&1 && echo works || echo fails; done`, "sh"}
	for _, line := range lines {
		argv = append(argv, line.text)
	}
	out, err := e.run(options, argv...).CombinedOutput()
	said := strings.Fields(string(out))
	if err != nil || len(said) != len(lines) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, line := range lines {
		if (said[i] == "works") != line.works {
			t.Errorf("%s %s", line.text, said[i])
		}
	}
}

// leads runs commands whose only way out is the network gate, whichever runtime
// that takes: through the proxy and by themselves, to a port that is granted and
// to one that is not.
func (e *engine) leads(t *testing.T, options []string) {
	t.Helper()
	const script = `for port in 8080 8081; do busybox httpd -p 127.0.0.1:$port -h /etc || exit 1; done
get() { bailey -q --policy '{"network": {"allowLocalOutboundPorts": ["8080"]}}' -- "$@" 2>/dev/null || echo fails; }
for port in 8080 8081; do
	get busybox wget -qO- http://127.0.0.1:$port/secret
	get busybox env -u http_proxy busybox wget -qO- http://127.0.0.1:$port/secret
done`
	out, err := e.run(options, "sh", "-c", script).CombinedOutput()
	if want := "secret\nsecret\nfails\nfails\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
}
