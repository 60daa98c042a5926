package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// restricted runs bailey where no namespaces can be made, and leaves out the warning
// about that, which the first line of stderr is if a command runs.
func (b *bench) restricted(args ...string) result {
	b.t.Helper()
	return withoutFallback(b.collect(b.filtered(testenv.NoNamespaces, args...)))
}

func withoutFallback(r result) result {
	if strings.HasPrefix(r.stderr, "bailey: weaker walls: ") {
		_, r.stderr, _ = strings.Cut(r.stderr, "\n")
	}
	return r
}

func aloneBench(t *testing.T) *bench {
	t.Helper()
	testenv.Requires(t, testenv.Landlock(6))
	b := newBench(t)
	b.env = append(b.env, "TMPDIR="+t.TempDir())
	return b
}

func TestCommandsRunWithoutNamespaces(t *testing.T) {
	b := aloneBench(t)
	b.write("plain", "echo\n", 0o644)
	for _, c := range []struct {
		name, line, stdout string
		status             int
	}{
		{"status", `exit 3`, "", 3},
		{"signal", `kill -TERM $$`, "", 143},
		{"project is written", `echo a >f && mkdir -p d/e && mv f d/e/g && ln d/e/g h && cat h && rm -r d h`, "a\n", 0},
		{"appended and cut", `echo ab >f && echo c >>f && truncate -s 1 f && cat f && rm f`, "a", 0},
		{"modes and dates", `umask 027; touch f && chmod 600 f && touch -d @7 f && stat -c '%a %Y' f && rm f`, "600 7\n", 0},
		{"owners", `touch o && chown "$(id -u):$(id -g)" o && tar cf t.tar o && rm o && tar xf t.tar && rm o t.tar`, "", 0},
		{"mask", `umask 077; touch m; stat -c %a m; rm m`, "600\n", 0},
		{"links", `ln -s /etc/passwd l && test -L l && rm l`, "", 0},
		{"private directories", `touch "$HOME/x" "$TMPDIR/y" && ls "$HOME" "$TMPDIR" | grep -c '^[xy]$'`, "2\n", 0},
		{"arguments", `printf '[%s]' "$@"`, "", 0},
		{"background is ended", `sleep 1000 & setsid sleep 1000 & echo on`, "on\n", 0},
		{"environment is clean", `test -z "$BAILEY_PARENT$BAILEY_TEST_REFUSE"`, "", 0},
		{"devices", `echo x >/dev/null && head -c 2 /dev/zero | wc -c`, "2\n", 0},
		{"terminal slack", `cat /proc/self/timerslack_ns`, "50000\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := b.restricted("-q", "-c", c.line)
			if c.name == "arguments" {
				got = b.restricted("-q", "--", "printf", "[%s]", "", "a b", "*", "\xff")
				c.stdout = "[][a b][*][\xff]"
			}
			got.want(t, c.status, c.stdout, "")
		})
	}
}

func TestWhatIsNotGrantedIsRefusedWithoutNamespaces(t *testing.T) {
	b := aloneBench(t)
	if out, err := exec.Command("git", "init", "-q", b.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	for name, mode := range map[string]os.FileMode{secret: 0o644, filepath.Join(b.home, ".netrc"): 0o600} {
		if err := os.WriteFile(name, []byte("secret\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	b.write(".env", "secret\n", 0o644)
	for name, line := range map[string]string{
		"read outside":           `cat ` + secret,
		"read the home":          `cat ` + b.home + `/.netrc`,
		"list outside":           `ls ` + outside,
		"write outside":          `echo x >` + outside + `/new`,
		"write over":             `echo x >` + secret,
		"remove outside":         `rm -f ` + secret + `; test ! -e ` + secret,
		"mode outside":           `chmod 777 ` + secret,
		"date outside":           `touch -d @7 ` + secret,
		"mode through a link":    `ln -s ` + secret + ` l; chmod 777 l`,
		"write through a link":   `ln -s ` + secret + ` k; echo x >k`,
		"read through a link":    `ln -s ` + secret + ` j; cat j`,
		"mode by descriptor":     `exec 5</etc/passwd; chmod 777 /proc/self/fd/5`,
		"hard link in":           `ln ` + secret + ` here`,
		"move out":               `touch mine; mv -n mine ` + outside + `/; test -e ` + outside + `/mine`,
		"protected hook":         `echo x >.git/hooks/pre-commit`,
		"protected config":       `echo x >>.git/config`,
		"protected removed":      `rm -f .git/config; test ! -e .git/config`,
		"protected moved":        `mv .git elsewhere`,
		"missing protected name": `echo x >.envrc`,
		"another's environment":  `cat /proc/$(ps -o ppid= -p $$ | tr -d ' ')/environ`,
		"signal outside":         `kill -0 1 || kill -0 ` + strconv.Itoa(os.Getpid()),
		"shared memory":          `echo x >/dev/shm/bailey-test`,
		"terminals of others":    `: <>/dev/ptmx`,
		"denied file":            `cat .env`,
		"denied file moved":      `mv .env shown && cat shown`,
		"denied file linked":     `ln .env shown && cat shown`,
		"sysctl":                 `echo x >/proc/sys/kernel/hostname`,
		"another's memory":       `head -c 1 /proc/` + strconv.Itoa(os.Getpid()) + `/mem`,
		"network":                `exec 3<>/dev/tcp/127.0.0.1/22`,
	} {
		t.Run(name, func(t *testing.T) {
			got := b.restricted("-q", "--deny-read", ".env", "-c", line)
			if got.status == 0 {
				t.Errorf("it succeeded: %+v", got)
			}
			if got.status >= exitOwn && got.status <= exitNotFound {
				t.Errorf("it did not run: %+v", got)
			}
		})
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "secret\n" {
		t.Errorf("the secret became %q, %v", data, err)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o644 {
		t.Errorf("its mode became %v, %v", info.Mode(), err)
	}
}

// The same lines without a sandbox, so that the test above fails if one of them
// could not have succeeded anyway.
func TestTheAttacksWorkWithoutASandbox(t *testing.T) {
	for name, line := range map[string]string{
		"mode by descriptor": `: >f; exec 5<f; chmod 777 /proc/self/fd/5`,
		"signal outside":     `kill -0 ` + strconv.Itoa(os.Getpid()),
		"date outside":       `: >f; touch -d @7 f`,
		"hard link in":       `: >f; ln f here`,
	} {
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// Calls that go by other ways than a shell's.
func TestCallsOnFilesThatAreNotGrantedFailWithoutNamespaces(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	b := aloneBench(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = `import os, sys, threading
secret, passwd = sys.argv[1], os.open("/etc/passwd", os.O_RDONLY)
here, path = os.open(".", os.O_RDONLY), os.open(secret, os.O_PATH)
def swap(stop):  # a name that is mine, and the next moment is not
    while not stop.is_set():
        for to in ("mine", secret):
            os.symlink(to, "next"); os.rename("next", "link")
open("mine", "w").close(); os.symlink("mine", "link")
calls = {
  "truncate": lambda: os.truncate(secret, 0),
  "chmod": lambda: os.chmod(secret, 0o777),
  "fchmod": lambda: os.fchmod(passwd, 0o777),
  "chmod of a path descriptor": lambda: os.chmod("/proc/self/fd/%d" % path, 0o777),
  "fchmodat": lambda: os.chmod(secret.lstrip("/"), 0o777, dir_fd=os.open("/", os.O_PATH)),
  "utime": lambda: os.utime(secret, (1, 1)),
  "utime of a descriptor": lambda: os.utime(passwd, (1, 1)),
  "chown": lambda: os.chown(secret, os.getuid(), os.getgid()),
  "lchown": lambda: os.lchown(secret, os.getuid(), os.getgid()),
  "setxattr": lambda: os.setxattr(secret, "user.a", b"a"),
  "setxattr of a descriptor": lambda: os.setxattr(passwd, "user.a", b"a"),
  "link": lambda: os.link(secret, "linked"),
  "rename in": lambda: os.rename(secret, "moved"),
  "rename out": lambda: os.rename("mine", secret),
  "unlink": lambda: os.unlink(secret),
  "mkfifo": lambda: os.mkfifo(secret + ".pipe"),
  "mkdir": lambda: os.mkdir(secret + ".dir"),
  "open to write": lambda: os.open(secret, os.O_WRONLY),
  "open to append": lambda: os.open(secret, os.O_WRONLY | os.O_APPEND),
  "open to make": lambda: os.open(secret + ".new", os.O_RDONLY | os.O_CREAT),
  "open without a name": lambda: os.open(os.path.dirname(secret), os.O_TMPFILE | os.O_RDWR),
  "open to read": lambda: os.open(secret, os.O_RDONLY),
}
for name, call in calls.items():
    try: call(); print(name, "succeeded")
    except OSError: pass
stop = threading.Event(); t = threading.Thread(target=swap, args=(stop,)); t.start()
for i in range(2000):
    for call in (lambda: os.chmod("link", 0o777), lambda: os.truncate("link", 0), lambda: os.utime("link", (1, 1)), lambda: os.close(os.open("link", os.O_WRONLY | os.O_TRUNC))):
        try: call()
        except OSError: pass
stop.set(); t.join()
`
	var before unix.Stat_t
	if err := unix.Stat(secret, &before); err != nil {
		t.Fatal(err)
	}
	b.restricted("-q", "--", "/usr/bin/python3", "-c", script, secret).want(t, 0, "", "")
	var after unix.Stat_t
	if err := unix.Stat(secret, &after); err != nil {
		t.Fatal(err)
	}
	if before.Atim = after.Atim; before != after {
		t.Errorf("the file became %+v, and was %+v", after, before)
	}
}

func TestUnixSocketsOfTheHostAreRefusedWithoutNamespaces(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	b := aloneBench(t)
	const line = `import socket
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    try: socket.socket(family)
    except OSError as e: print(e.errno)
a, b = socket.socketpair()
a.send(b"x"); print(b.recv(1).decode())`
	b.restricted("-q", "--", "/usr/bin/python3", "-c", line).want(t, 0, "97\n97\n97\n97\nx\n", "")
}

func TestNetworkIsOpenWithoutNamespacesIfThePolicySaysSo(t *testing.T) {
	testenv.Requires(t, testenv.Program("python3"))
	b := aloneBench(t)
	const line = `import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
c = socket.create_connection(s.getsockname()); print("connected")
try: socket.socket(socket.AF_UNIX)
except OSError as e: print(e.errno)`
	b.restricted("-q", "--allow-network", "--", "/usr/bin/python3", "-c", line).want(t, 0, "connected\n97\n", "")
}

func TestNamespacesAreDoneWithoutOnlyIfTheyAreMissing(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Program("unshare"))
	b := aloneBench(t)
	const note = "the landlock runtime is used"
	const weaker = "bailey: weaker walls: the landlock runtime is used, since a wall is missing: "
	for kind, wall := range map[string]string{"user": "user", "net": "network", "mnt": "mount"} {
		line := "echo 0 >/proc/sys/user/max_" + kind + "_namespaces"
		want := weaker + wall + " namespace; cause: user.max_" + kind + "_namespaces is 0: this kind of namespace is switched off; " +
			"fix: as root: sysctl -w user.max_" + kind + "_namespaces=15000\n"
		got := b.withSetting(line, []string{"-Ur"}, "-c", "echo ran")
		if got.status != 0 || got.stdout != "ran\n" || !strings.HasPrefix(got.stderr, want) || !strings.Contains(got.stderr, "bailey: "+note) {
			t.Errorf("%s: %+v", line, got)
		}
		b.withSetting(line, []string{"-Ur"}, "-q", "-c", "echo ran").want(t, 0, "ran\n", want)
	}
	got := b.withSetting("mount -t tmpfs none /proc/sys", []string{"-Urm"}, "-c", "echo ran")
	if got.status != 0 || got.stdout != "ran\n" || !strings.HasPrefix(got.stderr, weaker+"fresh /proc; cause: parts of /proc are covered") {
		t.Errorf("masked /proc: %+v", got)
	}
	if got := b.run("-c", "echo ran"); got.stdout != "ran\n" || strings.Contains(got.stderr, note) {
		t.Errorf("with namespaces: %+v", got)
	}
	if got := b.run("--runtime", "landlock", "-c", "echo ran"); got.stdout != "ran\n" || !strings.Contains(got.stderr, note) {
		t.Errorf("asked for: %+v", got)
	}
}

func TestWhatCannotBeHeldWithoutNamespacesIsNamed(t *testing.T) {
	b := aloneBench(t)
	with := func(policy string) []string { return []string{"--policy", policy} }
	hosts := with(`{"network": {"allowedDomains": ["example.com"]}}`)
	for _, c := range []struct {
		name  string
		args  []string
		wants []string
		then  []string // what the message says
	}{
		{"capture", with(`{"network": {"allowedDomains": ["example.com"], "transparent": true}}`), []string{"network.transparent true", "proxy variables", "remove it"}, hosts},
		{"a gate at a socket", with(`{"network": {"allowedDomains": ["example.com"], "egress": "socket"}}`), []string{"network.egress socket", "mount namespace", "remove it"}, hosts},
		{"a gate and every socket", with(`{"network": {"allowedDomains": ["example.com"], "allowAllUnixSockets": true}}`), []string{"network.allowAllUnixSockets", "around the gate", "remove it"}, hosts},
		{"exposed ports", []string{"-p", "8080"}, []string{"network.exposePorts", "needs a network namespace", "remove it"}, nil},
		{"patterns", with(`{"filesystem": {"denyRead": ["**/.env"]}}`), []string{"filesystem.denyRead **/.env", "only what exists at the start", "name the files or directories themselves"}, with(`{"filesystem": {"denyRead": ["secret"]}}`)},
		{"sockets", with(`{"network": {"allowUnixSockets": ["/run/x.sock"]}}`), []string{"network.allowUnixSockets", "cannot be told from another", `set "allowAllUnixSockets"`}, with(`{"network": {"allowAllUnixSockets": true}}`)},
		{"memory", with(`{"resources": {"memory": "64M"}}`), []string{"resources.memory 64M: needs a sandbox with namespaces of its own", "remove it"}, nil},
		{"monitor", []string{"--monitor"}, []string{"--monitor: needs namespaces; remove it"}, nil},
		{"account", []string{"--stats"}, []string{"--stats: needs namespaces; remove it"}, nil},
		{"required walls", with(`{"require": ["netns", "landlock"]}`), []string{"require netns: needs namespaces; remove it"}, with(`{"require": ["landlock"]}`)},
		{"native", []string{"--runtime", "native"}, []string{"the wall that is missing: user namespace"}, []string{"--runtime", "landlock"}},
	} {
		b.write("secret", "", 0o600)
		got := b.restricted(append(c.args, "-c", "echo ran >ran")...)
		got.wantError(t, c.wants...)
		if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
			t.Errorf("%s: the command ran", c.name)
		}
		b.restricted(append(c.then, "-q", "-c", "echo ran")...).want(t, 0, "ran\n", "")
	}
	got := b.restricted("--policy", `{"network": {"allowUnixSockets": ["/run/x.sock"]}}`, "--", "true")
	got.wantError(t, "cause: ", "fix: ", "without namespaces this policy cannot be held", "bailey doctor")
	// Who chose the runtime has nothing to look for elsewhere.
	for _, args := range [][]string{{"-p", "8080"}, {"--stats"}, {"--memory", "64M"}, with(`{"network": {"allowUnixSockets": ["/run/x.sock"]}}`)} {
		got := b.run(append(args, "--runtime", "landlock", "-c", "echo ran >ran")...)
		got.wantError(t, "leave out the runtime landlock")
		if strings.Contains(got.stderr, "doctor") {
			t.Errorf("%q: %s", args, got.stderr)
		}
	}
}

func TestOtherFacesRefuseTheLandlockRuntime(t *testing.T) {
	b := aloneBench(t)
	for _, args := range [][]string{{"audit"}, {"learn", "--", "true"}} {
		got := b.run(append([]string{"-q", "--runtime", "landlock"}, args...)...)
		if got.status != exitOwn || !strings.Contains(got.stderr, "runtime landlock: only a command by itself") {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

func TestNoSecondSandboxWithoutNamespacesInTheFirst(t *testing.T) {
	b := aloneBench(t)
	program := testenv.Binary(t, "bailey")
	got := b.run("-q", "--runtime", "landlock", "--allow-read", filepath.Dir(program), "--", program, "-q", "--allow-network", "--", "true")
	got.wantError(t, "already in a sandbox that has a broker")
}

func TestTimeoutEndsACommandWithoutNamespaces(t *testing.T) {
	b := aloneBench(t)
	got := b.restricted("-q", "--policy", `{"resources": {"timeout": "200ms"}}`, "-c", "sleep 1000 & sleep 1000")
	if got.status != exitTimeout {
		t.Errorf("got %+v", got)
	}
}

func TestSignalsReachACommandWithoutNamespaces(t *testing.T) {
	b := aloneBench(t)
	cmd := b.filtered(testenv.NoNamespaces, "-q", "-c", `trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("got %q", lines.Text())
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	lines.Scan()
	_ = cmd.Wait()
	if lines.Text() != "got" || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("got %q, %v", lines.Text(), cmd.ProcessState)
	}
}

// A launcher that is killed takes the command with it, and what it left behind is
// removed by the next.
func TestKilledLauncherLeavesNothingForLong(t *testing.T) {
	b := aloneBench(t)
	temporary := t.TempDir()
	b.env = append(b.env, "TMPDIR="+temporary)
	cmd := b.filtered(testenv.NoNamespaces, "-q", "-c", `echo $$; exec sleep 1000`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	pid, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatalf("no pid: %v", err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000); n != 1 {
		t.Fatalf("the command lives on: %v", err)
	}
	if left, _ := os.ReadDir(temporary); len(left) != 1 {
		t.Fatalf("expected one directory to be left, got %v", left)
	}
	b.restricted("-q", "--", "true").want(t, 0, "", "")
	if left, _ := os.ReadDir(temporary); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
