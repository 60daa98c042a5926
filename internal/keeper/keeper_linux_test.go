package keeper

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/version"
)

// startKeeper starts a keeper in a runtime directory of the test's own.
func startKeeper(t *testing.T) (pid int) {
	t.Helper()
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	runtime := t.TempDir()
	if err := os.Chmod(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	p, err := Own().open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	listener, err := p.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	cmd := exec.Command(testenv.Binary(t, "baileyd"), "keeper")
	cmd.ExtraFiles = []*os.File{listener}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := End(Stop{All: true}); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the keeper ended with: %v", err)
		}
		if _, err := os.Stat(sandbox.RuntimeDir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory of the socket is still there: %v", err)
		}
	})
	return cmd.Process.Pid
}

func compiled(t testing.TB, argv ...string) *spec.Spec {
	t.Helper()
	m := sandbox.New(sandbox.Config{Dir: t.TempDir()})
	if err := m.Initialize(); err != nil {
		t.Fatal(err)
	}
	s, err := m.Compile(argv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func runOf(name string, s *spec.Spec) Run {
	return Run{Name: name, Linger: time.Minute, Argv: s.Argv, Exec: s.Exec, Env: s.Env, Dir: s.Dir, Umask: 0o022}
}

// perform runs a command and returns how it ended and what it wrote.
func perform(t *testing.T, run Run, s *spec.Spec) (native.State, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd, err := Connect().Start(run, s, [3]*os.File{null, w, w}, nil, nil)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Close()
	st := cmd.Wait()
	if cmd.Err != nil {
		t.Fatal(cmd.Err)
	}
	out, _ := io.ReadAll(r)
	return st, string(out)
}

func TestHeldSandboxOutlivesAShortAbsence(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "sh", "-c", "echo kept >> /tmp/note; cat /tmp/note")
	held, err := Keep("api", s, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, out := perform(t, runOf("api", s), s); out != "kept\n" {
		t.Errorf("got %q", out)
	}
	held.Release()
	if held, err = Keep("api", s, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, out := perform(t, runOf("api", s), s); out != "kept\nkept\n" {
		t.Errorf("after the return got %q", out)
	}
	held.Release()
}

// leave starts a command that goes on without its client.
func leave(t *testing.T, run Run, s *spec.Spec) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	cmd, err := Connect().Start(run, s, [3]*os.File{null, null, null}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Close()
}

// Commands that were left behind do not keep a sandbox whose client is gone.
func TestOrphanedSandboxEnds(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "sleep", "1000")
	held, err := Keep("api", s, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	run := runOf("api", s)
	run.Detach, run.Linger = true, 0
	leave(t, run, s)
	boxes, err := List()
	if err != nil || len(boxes) != 1 || len(boxes[0].Commands) != 1 {
		t.Fatalf("while it is held: %+v, %v", boxes, err)
	}
	pid := boxes[0].Pid
	held.Release()
	deadline := time.Now().Add(20 * time.Second)
	for len(boxes) > 0 {
		if boxes, err = List(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %+v", boxes)
		}
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process 1: %v", err)
	}
}

// A client that speaks nonsense costs nobody else anything.
func TestKeeperSurvivesBadClients(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "echo", "hi")
	for name, nonsense := range map[string][]byte{
		"nothing":      {},
		"half":         {1, 0},
		"unknown":      {0, 0, 0, 0, '?'},
		"huge":         {255, 255, 255, 255, 'R'},
		"damaged":      {3, 0, 0, 0, 'R', 1, 2, 3},
		"no streams":   append([]byte{1, 0, 0, 0, 'R'}, 0),
		"stop damaged": {1, 0, 0, 0, 'S', 9},
		"logs damaged": {1, 0, 0, 0, 'G', 9},
		"hold damaged": {1, 0, 0, 0, 'H', 9},
	} {
		c, err := Own().dial(true)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := c.file.Write(nonsense); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.close()
	}
	for range 50 { // clients that say nothing at all stay
		c, err := Own().dial(true)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
	}
	if _, out := perform(t, runOf("dev", s), s); out != "hi\n" {
		t.Errorf("got %q", out)
	}
}

// Files may be replaced between the moment when a sandbox is asked for and the
// moment when it is made: it is known by what it shows then.
func TestSandboxIsKnownByWhatItWasMadeFrom(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "echo", "hi")
	hold := func(key []byte) *conn {
		c, err := Own().dial(true)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.send(askHold, Hold{Name: "dev", Key: key, Linger: time.Minute}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := hold([]byte("before a file was replaced"))
	defer first.close()
	if err := (&Command{conn: first, spec: s}).begin(); err != nil {
		t.Fatal(err)
	}
	boxes, err := List()
	if err != nil || len(boxes) != 1 {
		t.Fatalf("%+v, %v", boxes, err)
	}
	second := hold(Key(s))
	defer second.close()
	if err := (&Command{conn: second, spec: s}).begin(); err != nil {
		t.Fatal(err)
	}
	if now, err := List(); err != nil || len(now) != 1 || now[0].Pid != boxes[0].Pid {
		t.Errorf("%+v, then %+v, %v", boxes, now, err)
	}
}

// Client and keeper must see the same files.
func TestKeeperChecksThePlan(t *testing.T) {
	startKeeper(t)
	s := compiled(t, "echo", "hi")
	c, err := Own().dial(true)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	answer, err := c.exchange(askHold, Hold{Name: "dev", Key: Key(s), Linger: time.Minute})
	for err == nil && answer.kind == tellWant {
		answer, err = c.exchange(askSpec, Plan{Spec: *s, Key: []byte("other files")})
	}
	if err == nil || !strings.Contains(err.Error(), "sees other files") {
		t.Errorf("got %v", err)
	}
}

// A credential is a part of what is decided about a sandbox, and so are the roots
// that servers are verified with.
func TestKeyChangesWithWhatTheGateIsGiven(t *testing.T) {
	gated := *compiled(t, "true")
	gated.Gate = &spec.Gate{Config: config.Config{Inject: []config.Injection{{FromEnv: "TOKEN"}}}}
	base := []string{"HOME=/home/me", "TOKEN=one"}
	key := string(keyOf(&gated, base))
	for name, c := range map[string]struct {
		environ []string
		same    bool
	}{
		"another value":              {[]string{"HOME=/home/me", "TOKEN=two"}, false},
		"none":                       {[]string{"HOME=/home/me"}, false},
		"roots":                      {append([]string{"SSL_CERT_FILE=/ca"}, base...), false},
		"of two the last one counts": {append([]string{"TOKEN=two"}, base...), true},
		"what nobody asks for":       {append([]string{"SHLVL=2"}, base...), true},
	} {
		if same := string(keyOf(&gated, c.environ)) == key; same != c.same {
			t.Errorf("%s: the key is the same: %v", name, same)
		}
	}
}

func TestClientWantsAKeeperOfItsVersion(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	p, err := Own().open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	listener, err := p.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		fd, _, err := unix.Accept(int(listener.Fd()))
		if err != nil {
			return
		}
		c := &conn{file: os.NewFile(uintptr(fd), "client")}
		defer c.close()
		_ = c.send(tellHello, Hello{version.Version + "-other"})
	}()
	if _, err := List(); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v", err)
	}
}

func TestDirectoryOfOthersIsRefused(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	dir := filepath.Join(runtime, "bailey")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := List(); err == nil || !strings.Contains(err.Error(), "others can write to it") {
		t.Errorf("a directory for all: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := List(); err == nil {
		t.Error("a symbolic link was followed")
	}
}

// Every field of a Spec but those of the command decides about the sandbox.
func TestKeyChangesWithEverythingButTheCommand(t *testing.T) {
	s := compiled(t, "true")
	base := string(Key(s))
	ofCommand := []string{"Argv", "Exec", "Dir", "Env", "TimeoutMillis", "Warnings", "DroppedEnv", "OmittedEnv"}
	for i := range reflect.TypeFor[spec.Spec]().NumField() {
		field := reflect.TypeFor[spec.Spec]().Field(i)
		changed := *s
		v := reflect.ValueOf(&changed).Elem().Field(i)
		switch v.Kind() {
		case reflect.Slice:
			v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), reflect.Zero(v.Type().Elem())))
		case reflect.Pointer:
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			} else {
				v.SetZero()
			}
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Struct:
			v.SetZero()
		}
		isCommand := strings.Contains(" "+strings.Join(ofCommand, " ")+" ", " "+field.Name+" ")
		if same := string(Key(&changed)) == base; same != isCommand {
			t.Errorf("%s: the key is the same: %v", field.Name, same)
		}
	}
}

// The gate is given what its credentials are read from, and no more.
func TestTheGateIsGivenWhatItNeeds(t *testing.T) {
	t.Setenv("TOKEN", "one")
	t.Setenv("SSL_CERT_DIR", "/roots")
	t.Setenv("VAULT_ADDR", "somewhere")
	for name, c := range map[string]struct {
		inject config.Injection
		want   []string
	}{
		"nothing":    {config.Injection{FromFile: "/token"}, []string{"SSL_CERT_DIR"}},
		"a variable": {config.Injection{FromEnv: "TOKEN"}, []string{"SSL_CERT_DIR", "TOKEN"}},
		"a program":  {config.Injection{FromCommand: []string{"vault"}}, []string{"SSL_CERT_DIR", "TOKEN", "VAULT_ADDR"}},
	} {
		s := &spec.Spec{Gate: &spec.Gate{Config: config.Config{Inject: []config.Injection{c.inject}}}}
		var got []string
		for _, v := range chosen(needed(s), []string{"SSL_CERT_DIR", "TOKEN", "VAULT_ADDR"}) {
			variable, _, _ := strings.Cut(v, "=")
			got = append(got, variable)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := needed(&spec.Spec{}); got != nil {
		t.Errorf("without a gate: %q", got)
	}
}

func TestNamesOfSandboxes(t *testing.T) {
	for name, ok := range map[string]bool{
		"dev": true, "a": true, "A9._-": true, strings.Repeat("x", 64): true,
		"": false, "-x": false, ".": false, "../x": false, "a/b": false, "a b": false, "ä": false, "a\n": false, strings.Repeat("x", 65): false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFailuresKeepTheirForm(t *testing.T) {
	for _, want := range []error{
		&native.ExecError{Name: "x", Errno: unix.ENOENT},
		&native.LaunchError{Step: "s", Wall: native.WallUser, Errno: unix.EPERM},
		&spec.Refused{Reasons: []*spec.Unsupported{{Key: "resources.memory", Value: "1M", Reason: "r", Fix: "f"}}},
	} {
		f := failureOf(want)
		if got := f.err(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, want %#v", got, want)
		}
	}
	f := failureOf(errors.New("plain"))
	if got := f.err(); got.Error() != "plain" {
		t.Errorf("got %v", got)
	}
}

func TestStatIsReadBehindAnyName(t *testing.T) {
	const rest = " S 1 2 3 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 12345 1000000 25 18446744073709551615 1"
	for _, name := range []string{"(sh)", "(a b)", "() S 1 (", "())"} {
		cpu, memory := parseStat([]byte("7 " + name + ")" + rest))
		if cpu != 2*time.Second || memory != 25*int64(os.Getpagesize()) {
			t.Errorf("%s: %v, %d", name, cpu, memory)
		}
	}
	if cpu, memory := parseStat(nil); cpu != 0 || memory != 0 {
		t.Error("nothing was taken for something")
	}
}

func TestOutputKeepsItsEnd(t *testing.T) {
	var o output
	data, place, more := o.after(0)
	if len(data) != 0 || more == nil {
		t.Fatalf("empty: %q", data)
	}
	_, _ = o.Write([]byte("one"))
	<-more
	if data, place, _ = o.after(place); string(data) != "one" {
		t.Errorf("got %q", data)
	}
	_, _ = o.Write(make([]byte, maxLog))
	_, _ = o.Write([]byte("end"))
	if data, _, _ = o.after(place); len(data) != maxLog || string(data[maxLog-3:]) != "end" {
		t.Errorf("got %d bytes", len(data))
	}
	o.end()
	if _, _, more = o.after(place); more != nil {
		t.Error("more is promised after the end")
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte{}, byte('R'))
	f.Fuzz(func(t *testing.T, data []byte, k byte) {
		r := received{kind: kind(k), data: data}
		for _, v := range []any{new(Run), new(Plan), new(Hold), new(Stop), new(Logs), new(Link), new(Open), new(Exec), new(Name), new(Signal), new(Tag), new(Stopping), new(Freeze), new(Root), new(Rules)} {
			_ = r.decode(v) // must not panic, nor allocate without bound
		}
	})
}
