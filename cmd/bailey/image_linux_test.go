package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	imagearchive "github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// busyImage writes an archive with an image in which busybox is everything, and returns
// where it is.
func busyImage(t *testing.T, c v1.Config) string {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/busybox", Mode: 0o755}, busybox)
	for _, applet := range []string{"sh", "cat", "ls", "echo", "touch", "env", "id", "pwd"} {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "usr/bin/" + applet, Linkname: "busybox"}, nil)
	}
	// An absolute link, which must not lead to the host's.
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "/usr/bin"}, nil)
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "all", Linkname: "/"}, nil)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/os-release", Mode: 0o644}, []byte("the image's\n"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "app/file", Mode: 0o666}, []byte("content\n"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/bin/sh\napp:x:1234:2345::/:/bin/sh\n"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\napps:x:2345:\nothers:x:3456:\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := imagearchive.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	i, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		i, err = mutate.Config(i, c)
	}
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("busy:test")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := imagearchive.WriteToFile(file, tag, i); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCommandIsTheImagesUser(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"))
	b := newBench(t)
	file := busyImage(t, v1.Config{User: "app", WorkingDir: "/app", Cmd: []string{"sh", "-c", "id -u; id -g; pwd"}})
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"its own command", nil, "1234\n2345\n/app\n"},
		{"words of the caller's", []string{"--", "sh", "-c", "id -u; id -g; pwd"}, "1234\n2345\n" + b.dir + "\n"},
		{"a directory of the caller's", []string{"--workdir", "/etc", "--", "pwd"}, "/etc\n"},
		{"a user of the caller's", []string{"--user", "99:others", "--", "sh", "-c", "id -u; id -g"}, "99\n3456\n"},
		{"a user without a group", []string{"--user", "77", "--", "sh", "-c", "id -u; id -g"}, "77\n77\n"},
		{"root", []string{"--user", "root", "--", "sh", "-c", "id -u; id -g"}, "0\n0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := b.run(append([]string{"run", "-q", "--image", file}, test.args...)...); got.status != 0 || got.stdout != test.want {
				t.Errorf("%+v, want %q", got, test.want)
			}
		})
	}
	// What it makes is the caller's, outside.
	if got := b.run("run", "-q", "--image", file, "--", "sh", "-c", "echo x >made"); got.status != 0 {
		t.Errorf("%+v", got)
	}
	info, err := os.Stat(filepath.Join(b.dir, "made"))
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		t.Errorf("what was made belongs to %d:%d, not to the caller", st.Uid, st.Gid)
	}
	b.run("run", "--image", file, "--user", "nobody-there", "--", "id").wantError(t, "--user nobody-there", "is not known there", "by its number")
	b.run("run", "--image", file, "--workdir", "/nowhere", "--", "id").wantError(t, "--workdir /nowhere", "is no directory")
	b.run("--user", "app", "--", "true").wantError(t, "--user and --workdir go with --image or --rootfs")
}

func TestThePolicyNamesTheImage(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"), testenv.Program("crun"))
	b := newBench(t)
	if err := os.Rename(busyImage(t, v1.Config{Cmd: []string{"echo", "its own"}}), filepath.Join(b.dir, "image.tar")); err != nil {
		t.Fatal(err)
	}
	const release = "the image's\n"
	policy := b.write("bailey.jsonc", `{"extends": "default", "image": "./image.tar"}`, 0o644)
	where := policy + ":1:33: "
	b.run("--", "cat", "/etc/os-release").wantError(t, where+"image is refused in a file that is not trusted", "bailey trust")
	if got := b.run("trust", "--yes"); got.status != 0 || !strings.Contains(got.stdout+got.stderr, "runs in the image ./image.tar") {
		t.Fatalf("%+v", got)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"native", []string{"--", "cat", "/etc/os-release"}, release},
		{"crun", []string{"--runtime", "crun", "--", "cat", "/etc/os-release"}, release},
		{"a line", []string{"-c", "cat /etc/os-release"}, release},
		{"its own command", nil, "its own\n"},
		{"with a user", []string{"--user", "77", "--", "id", "-u"}, "77\n"},
		{"a flag", []string{"--image", busyImage(t, v1.Config{Cmd: []string{"echo", "another"}})}, "another\n"},
	} {
		if got := b.run(append([]string{"run", "-q"}, c.args...)...); got.status != 0 || got.stdout != c.want {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	for _, verb := range [][]string{{"explain", "--", "true"}, {"config", "show"}} {
		if got := b.run(verb...); got.status != 0 || !strings.Contains(got.stdout, "image.tar") {
			t.Errorf("%v: %+v", verb, got)
		}
	}
	b.run("learn", "--", "true").wantError(t, "image ./image.tar", "only commands that bailey itself runs")
	b.run("--policy", `{"image": "-x"}`, "--", "true").wantError(t, "an image is a reference such as")
}

func TestContainersShowTheImagesUserOrSayWhyNot(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"), testenv.Program("bwrap"), testenv.Program("crun"))
	b := newBench(t)
	file := busyImage(t, v1.Config{User: "app"})
	const shown, why = "1234\n2345\n", "the command is not the image's user 1234:2345"
	root := os.Geteuid() == 0
	for runtime, shows := range map[string]bool{"bwrap": !root, "crun": root} {
		t.Run(runtime, func(t *testing.T) {
			got := b.run("run", "--runtime", runtime, "--image", file, "--", "sh", "-c", "id -u; id -g; echo x >made")
			if got.status != 0 || (got.stdout == shown) != shows || strings.Contains(got.stderr, why) == shows {
				t.Errorf("%+v", got)
			}
			if asked := b.run("run", "-q", "--runtime", runtime, "--image", file, "--user", "7", "--", "id", "-u"); shows && asked.stdout != "7\n" || !shows && !strings.Contains(asked.stderr, "--user 7:7") {
				t.Errorf("asked for: %+v", asked)
			}
		})
	}
}

// weak leaves out what runtimes without a broker refuse.
const weak = `{"filesystem": {"protectMissing": false}}`

func TestCommandRunsInAnImage(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"), testenv.Program("bwrap"), testenv.Program("runc"))
	b := newBench(t)
	file := busyImage(t, v1.Config{Env: []string{"PATH=/bin", "FROM=image"}})
	// The host's, by every way that could lead there.
	const line = `cat /etc/os-release /all/etc/os-release; echo $FROM $PATH; ls /usr/share 2>/dev/null; echo x >made && cat made; touch /app/file /x; id -u >/dev/null`
	const want = "the image's\nthe image's\nimage /bin\nx\n"
	for _, runtime := range []string{"native", "bwrap", "runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			if _, err := exec.LookPath(runtime); err != nil && runtime == "crun" {
				t.Skip("requires: program crun")
			}
			got := b.run("run", "-q", "--runtime", runtime, "--policy", weak, "--image", file, "--", "sh", "-c", line)
			if got.status != 0 || got.stdout != want || !strings.Contains(got.stderr, "Read-only file system") {
				t.Errorf("status %d, stdout %q, stderr %q; want %q", got.status, got.stdout, got.stderr, want)
			}
			if text, err := os.ReadFile(filepath.Join(b.dir, "made")); string(text) != "x\n" {
				t.Errorf("in the project there is %q, %v", text, err)
			}
		})
	}
}

func TestImageSaysWhatIsRun(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"))
	b := newBench(t)
	both := busyImage(t, v1.Config{Env: []string{"PATH=/bin"}, Entrypoint: []string{"echo", "entry"}, Cmd: []string{"own", "words"}})
	none := busyImage(t, v1.Config{})
	for _, test := range []struct {
		name   string
		args   []string
		stdout string
		stderr string
		status int
	}{
		{"its own words", []string{"run", "--image", both}, "entry own words\n", "", 0},
		{"words of the caller's", []string{"run", "--image", both, "--", "others"}, "entry others\n", "", 0},
		{"without the verb", []string{"--image", both, "--", "others"}, "entry others\n", "", 0},
		{"none", []string{"run", "--image", none}, "", "no command, and the image has none", 125},
		{"PATH where the image has none", []string{"run", "--image", none, "--", "echo", "x"}, "x\n", "", 0},
		{"a program that it does not have", []string{"run", "--image", none, "--", "git"}, "", "git: not found in the image", 127},
		{"a line of shell", []string{"run", "--image", none, "-c", "echo $0"}, "sh\n", "", 0},
		{"a pattern that is decided while it runs", []string{"run", "--image", none, "--policy", `{"filesystem": {"denyRead": ["**/*.pem"]}}`, "--", "cat", "/etc/os-release"}, "the image's\n", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := b.run(append([]string{"-q"}, test.args...)...)
			if got.status != test.status || got.stdout != test.stdout || !strings.Contains(got.stderr, test.stderr) {
				t.Errorf("status %d, stdout %q, stderr %q", got.status, got.stdout, got.stderr)
			}
		})
	}
}

func TestDirectoryIsARoot(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"))
	b := newBench(t)
	b.run("-q", "--image", busyImage(t, v1.Config{}), "--", "true")
	found, err := filepath.Glob(filepath.Join(b.home, ".local/share/bailey/images/trees/*/root"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the image is at %q, %v", found, err)
	}
	if got := b.run("-q", "--rootfs", found[0], "--", "cat", "/etc/os-release"); got.stdout != "the image's\n" {
		t.Errorf("%+v", got)
	}
	b.run("--rootfs", "/", "--", "true").wantError(t, "--rootfs /", "not the root directory")
	b.run("--rootfs", "/no/such", "--", "true").wantError(t, "no such file")
	b.run("--rootfs", found[0], "--image", "x", "--", "true").wantError(t, "exclude each other")
	b.run("--rootfs", found[0], "--runtime", "landlock", "--", "true").wantError(t, "without a mount namespace")
}

func TestSandboxThatStaysHasAnImage(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"))
	b := newBench(t)
	defer b.run("box", "stop", "--all")
	file := busyImage(t, v1.Config{Env: []string{"PATH=/bin", "FROM=image"}, Cmd: []string{"sh", "-c", "echo own; pwd"}, WorkingDir: "/app"})
	says := func(want string, args ...string) {
		t.Helper()
		if got := b.run(append([]string{"-q"}, args...)...); got.status != 0 || got.stdout != want {
			t.Errorf("%q: %+v", args, got)
		}
	}
	says("image\nthe image's\n", "--keep", "dev", "--image", file, "--", "sh", "-c", "echo $FROM; cat /etc/os-release; echo mark >/tmp/mark")
	says("own\n/app\n", "--keep", "dev", "--image", file) // in the same one
	says("mark\nimage\n", "box", "exec", "dev", "--", "sh", "-c", "cat /tmp/mark; echo $FROM")
	b.run("box", "reload", "dev").wantError(t, "no network, and no rules that could change") // it is the same otherwise
	b.run("image", "remove", file).wantError(t, "a command runs in it")
	says("", "box", "stop", "dev")
	says("", "image", "remove", file)
	policy := b.write("policy.jsonc", `{"extends": "default", "image": "`+file+`"}`, 0o644)
	says("image\n", "-s", policy, "--keep", "by-policy", "--", "sh", "-c", "echo $FROM")
	// Rules come to those that have a gate, whoever their commands are.
	const gate, grant = `{"network": {"transparent": true}}`, `{"network": {"transparent": true, "allowedDomains": ["example.com"]}}`
	says("7\n", "--policy", gate, "--keep", "net", "--image", file, "--user", "7", "--", "id", "-u")
	says("", "--policy", grant, "box", "reload", "net")
	says("7\n", "--policy", grant, "--keep", "net", "--image", file, "--user", "7", "--", "id", "-u") // finds it
	other := busyImage(t, v1.Config{Env: []string{"PATH=/bin", "FROM=another"}})
	b.run("--policy", gate, "--image", other, "box", "reload", "net").wantError(t, "the policy differs in")
}

func TestImagesAreListedAndRemoved(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(6), testenv.Program("busybox"))
	b := newBench(t)
	file := busyImage(t, v1.Config{})
	if got := b.run("image", "pull", file); got.status != 0 || !strings.HasPrefix(got.stdout, "sha256:") {
		t.Errorf("pull: %+v", got)
	}
	if got := b.run("image", "list"); !strings.Contains(got.stdout, file) {
		t.Errorf("list: %+v", got)
	}
	// While a command runs in it.
	cmd := b.command("-q", "--image", file, "--", "sh", "-c", "echo ready; cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Error(err)
	}
	b.run("image", "remove", file).wantError(t, "a command runs in it")
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := b.run("image", "remove", file); got.status != 0 {
		t.Errorf("remove: %+v", got)
	}
	if got := b.run("image", "list"); strings.Contains(got.stdout, file) {
		t.Errorf("list: %+v", got)
	}
	b.run("image", "eat").wantError(t, "usage: bailey image")
	b.run("image", "remove", file).wantError(t, "there is no such image")
}

func TestExplainShowsTheImage(t *testing.T) {
	testenv.Requires(t, testenv.Program("busybox"))
	b := newBench(t)
	got := b.run("explain", "--image", busyImage(t, v1.Config{}), "--", "sh")
	for _, want := range []string{"image  ", "sha256:", "/app"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q is missing in\n%s%s", want, got.stdout, got.stderr)
		}
	}
}

func TestDegradedRunsAreNamed(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("runsc"))
	b := newBench(t)
	b.env = append(b.env, "PATH="+os.Getenv("PATH")) // where that is
	b.run("--runtime", "gvisor", "--", "true").wantError(t, "filesystem.protectMissing", "--allow-degraded")
	got := b.run("--runtime", "gvisor", "--allow-degraded", "--", "sh", "-c", "echo x >.envrc && cat .envrc")
	if got.status != 0 || got.stdout != "x\n" || !strings.Contains(got.stderr, "degraded: the gvisor runtime has no broker") {
		t.Errorf("%+v", got)
	}
	for _, runtime := range [][]string{nil, {"--runtime", "native"}, {"--runtime", "runc"}} {
		b.run(append(runtime, "--allow-degraded", "--", "true")...).wantError(t, "--allow-degraded goes with --runtime")
	}
}

func TestContainersHoldTheDefaultPolicy(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	for _, runtime := range []string{"runc", "crun"} {
		t.Run(runtime, func(t *testing.T) {
			testenv.Requires(t, testenv.Program(runtime))
			b := newBench(t)
			got := b.run("--runtime", runtime, "--", "sh", "-c", "echo x >made && mkdir .vscode; echo x >.envrc")
			for _, name := range []string{".vscode", ".envrc"} {
				if !strings.Contains(got.stderr, name+" (protected name)") {
					t.Errorf("%s was not denied by name: %+v", name, got)
				}
			}
			info, err := os.Stat(filepath.Join(b.dir, "made"))
			if err != nil {
				t.Fatal(err)
			}
			if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
				t.Errorf("what was made belongs to %d:%d, not to the caller", st.Uid, st.Gid)
			}
		})
	}
}
