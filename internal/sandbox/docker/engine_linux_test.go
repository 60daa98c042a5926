package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// place is a project in which commands run in containers of an engine of the test's own.
type place struct {
	*testing.T
	bailey  string
	project string
	engine  string
}

// policy leaves out what containers cannot hold.
const policy = `{"filesystem": {"protectMissing": false}}`

func newPlace(t *testing.T) *place {
	t.Helper()
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &place{t, testenv.Binary(t, "bailey"), project, testenv.Dockerd(t)}
}

func (p *place) command(argv ...string) *exec.Cmd {
	c := exec.Command(p.bailey, append([]string{"-q", "--runtime", Docker, "--policy", policy, "--"}, argv...)...)
	c.Dir = p.project
	c.Env = append(os.Environ(), "DOCKER_HOST="+p.engine)
	return c
}

// output runs a command that must succeed.
func (p *place) output(argv ...string) string {
	p.Helper()
	c := p.command(argv...)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		p.Fatalf("%v: %v\n%s", argv, err, &stderr)
	}
	return string(out)
}

// Programs that know nothing of proxies are led to the gate, as are those that do.
func TestTheGateIsReachedAtItsPorts(t *testing.T) {
	testenv.Requires(t, testenv.Program("curl"))
	p := newPlace(t)
	const gated = `{"network": {"allowedDomains": ["granted.test"], "transparent": true}}`
	const line = `curl -s -o /dev/null -w '%{http_code} ' http://denied.test/; curl --noproxy '*' -s -o /dev/null -w '%{http_code}' http://192.0.2.1/`
	c := p.command("sh", "-c", line)
	c.Args[slices.Index(c.Args, policy)] = gated
	if out, err := c.Output(); err != nil || string(out) != "403 403" {
		t.Errorf("%q, %v, want 403 twice", out, err)
	}
	if containers, stages := p.left(); len(containers)+len(stages) > 0 {
		t.Errorf("containers %v and stages %v are left", containers, stages)
	}
}

// left is what there is of containers and stages.
func (p *place) left() (containers, stages []string) {
	p.Helper()
	api, err := client.New(client.WithHost(p.engine))
	if err != nil {
		p.Fatal(err)
	}
	defer api.Close()
	list, err := api.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	if err != nil {
		p.Fatal(err)
	}
	for _, c := range list.Items {
		containers = append(containers, c.ID)
	}
	return containers, p.stagesOf()
}

// stagesOf lists the stages whose owner is gone, or was started by this test.
func (p *place) stagesOf() (list []string) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		at := strings.Fields(line)[1]
		if filepath.Dir(at) == stages && isOrphan(filepath.Base(at)) {
			list = append(list, at)
		}
	}
	return list
}

func (p *place) wantNothingLeft() {
	p.Helper()
	if containers, stages := p.left(); len(containers)+len(stages) > 0 {
		p.Errorf("left: containers %q, stages %q", containers, stages)
	}
}

// wait has a command started that says when it runs, and returns its process.
func (p *place) wait(c *exec.Cmd) {
	p.Helper()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		p.Fatal(err)
	}
}

// guardOf is the guard of a command: its only child.
func (p *place) guardOf(c *exec.Cmd) int {
	p.Helper()
	pid := strconv.Itoa(c.Process.Pid)
	text, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		p.Fatal(err)
	}
	guard, err := strconv.Atoi(strings.Fields(string(text) + " -")[0])
	if err != nil {
		p.Fatalf("no guard: %q", text)
	}
	return guard
}

// ended waits for the end of a process that is nobody's child here.
func (p *place) ended(pidfd int) {
	p.Helper()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			p.Fatal(err)
		}
		return
	}
}

func TestContainersOfAnEngine(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.Program("dockerd"))
	p := newPlace(t)
	for name, test := range map[string]func(*place){
		"the command is nobody, and its files are the caller's": ownFiles,
		"streams are apart":               apart,
		"a reader that has gone is told":  brokenPipe,
		"a killed bailey leaves nothing":  killBailey,
		"a killed guard leaves nothing":   killGuard,
		"what both leave that are killed": killBoth,
		"the environment is exactly that": environment,
		"links are not followed":          links,
		"the root directory":              rootDirectory,
		"files that engines have, too":    engineOwn,
		"the root directory of another":   otherRoot,
	} {
		t.Run(name, func(t *testing.T) {
			test(&place{t, p.bailey, p.project, p.engine})
		})
	}
	p.wantNothingLeft()
}

func ownFiles(p *place) {
	if got := p.output("sh", "-c", "id -u && umask 027 && echo x >made"); got != "65534\n" {
		p.Errorf("the command is %q", got)
	}
	info, err := os.Stat(filepath.Join(p.project, "made"))
	if err != nil {
		p.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(p.project, "made"), &st); err != nil || st.Uid != 0 || st.Gid != 0 || info.Mode().Perm() != 0o640 {
		p.Errorf("made by %d:%d with mode %v (%v)", st.Uid, st.Gid, info.Mode(), err)
	}
}

func apart(p *place) {
	c := p.command("sh", "-c", "cat; echo error >&2; exit 3")
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader("in"), &stdout, &stderr
	_ = c.Run() // its status follows
	if got := c.ProcessState.ExitCode(); got != 3 || stdout.String() != "in" || stderr.String() != "error\n" {
		p.Errorf("status %d, stdout %q, stderr %q", got, &stdout, &stderr)
	}
}

// brokenPipe: a command that never stops to write stops when nobody reads.
func brokenPipe(p *place) {
	c := p.command("yes")
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		p.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		p.Fatal(err)
	}
	_ = out.Close()
	_ = c.Wait()
	if got := c.ProcessState.ExitCode(); got != foreground.Signalled+int(unix.SIGPIPE) {
		p.Errorf("status %d", got)
	}
}

func killBailey(p *place) {
	c := p.command("sh", "-c", "echo ready; sleep 1000")
	p.wait(c)
	guard, err := unix.PidfdOpen(p.guardOf(c), 0)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = unix.Close(guard) }()
	if err := c.Process.Kill(); err != nil {
		p.Fatal(err)
	}
	_ = c.Wait()
	p.ended(guard) // it takes everything down before
	p.wantNothingLeft()
}

// killGuard: the guard's container does not run on without it.
func killGuard(p *place) {
	c := p.command("sh", "-c", "echo ready; sleep 1000")
	p.wait(c)
	if err := unix.Kill(p.guardOf(c), unix.SIGKILL); err != nil {
		p.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		p.Error("the command is said to have ended well")
	}
	p.wantNothingLeft()
}

// killBoth: the container ends when both are killed, and what else is left is removed by the
// next start.
func killBoth(p *place) {
	c := p.command("sh", "-c", "echo ready; sleep 1000")
	p.wait(c)
	pid := p.guardOf(c)
	removed := p.removal()
	guard, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = unix.Close(guard) }()
	for _, kill := range []func() error{
		func() error { return unix.Kill(pid, unix.SIGSTOP) },
		c.Process.Kill,
		func() error { return unix.Kill(pid, unix.SIGKILL) },
	} {
		if err := kill(); err != nil {
			p.Fatal(err)
		}
	}
	_ = c.Wait()
	p.ended(guard)
	if stages := p.stagesOf(); len(stages) == 0 {
		p.Error("control: there is no stage, so there is nothing to remove")
	}
	removed()
	p.output("true")
	p.wantNothingLeft()
}

// removal returns what waits until the only container of the engine is gone.
func (p *place) removal() (wait func()) {
	p.Helper()
	api, err := client.New(client.WithHost(p.engine))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = api.Close() })
	list, err := api.ContainerList(p.Context(), client.ContainerListOptions{})
	if err != nil || len(list.Items) != 1 {
		p.Fatalf("containers %v (%v), want one", list.Items, err)
	}
	gone := api.ContainerWait(p.Context(), list.Items[0].ID, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	return func() {
		p.Helper()
		select {
		case <-gone.Result:
		case err := <-gone.Error:
			p.Error(err)
		case <-time.After(patience):
			p.Error("the container runs on")
		}
	}
}

func environment(p *place) {
	c := p.command("env")
	c.Env = []string{"DOCKER_HOST=" + p.engine, "HOME=/root", "PATH=/usr/bin:/bin", "TERM=dumb"}
	out, err := c.Output()
	if err != nil {
		p.Fatal(err)
	}
	for _, name := range []string{"HOSTNAME=", "DOCKER_HOST="} {
		if strings.Contains("\n"+string(out), "\n"+name) {
			p.Errorf("%s came in:\n%s", name, out)
		}
	}
	if !strings.Contains(string(out), "PATH=/usr/bin:/bin\n") {
		p.Errorf("control: no PATH in\n%s", out)
	}
}

// links: a grant whose directory became a link between the decision and the mount shows
// nothing. Here it is one from the start, and the policy names it without.
func links(p *place) {
	secret := p.TempDir()
	if err := os.Mkdir(filepath.Join(secret, "dir"), 0o755); err != nil {
		p.Fatal(err)
	}
	s := example()
	s.Mounts = append(s.Mounts[:0], s.Mounts[9]) // the private /tmp
	link := filepath.Join(p.TempDir(), "link")
	if err := os.Symlink(secret, link); err != nil {
		p.Fatal(err)
	}
	s.Mounts[0].Kind, s.Mounts[0].Source, s.Mounts[0].Target = "bind", link+"/dir", "/granted"
	dir, err := makeStage("0-0-0")
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = removeStage(dir) }()
	plan, err := planFor(s, dir, runc, "0-0-0", false)
	if err != nil {
		p.Fatal(err)
	}
	if err := plan.furnish(dir, nil); !errors.Is(err, unix.ELOOP) {
		p.Errorf("got %v, want %v", err, unix.ELOOP)
	}
}

func rootDirectory(p *place) {
	got := p.output("sh", "-c", "ls -d /run /sys/* 2>&1; touch /x 2>&1; readlink /bin; true")
	if !strings.HasPrefix(got, "/run\n") && !strings.Contains(got, "\n/run\n") || strings.Contains(got, "/sys/kernel") || !strings.Contains(got, "Read-only") {
		p.Errorf("got %q", got)
	}
}

// engineOwn: where an engine has files of its own, the host's are seen.
func engineOwn(p *place) {
	const files = "/etc/hosts /etc/hostname /etc/resolv.conf /sys/devices/system/cpu/possible"
	var want []byte
	for _, file := range strings.Fields(files) {
		text, err := os.ReadFile(file)
		if err != nil {
			testenv.Requires(p, testenv.File(file))
		}
		want = append(want, text...)
	}
	if got := p.output("sh", "-c", "cat "+files); got != string(want) {
		p.Errorf("got %q, want %q", got, want)
	}
	if got := p.output("sh", "-c", "ls /sys; echo x >>/etc/hosts || echo refused"); got != "devices\nrefused\n" {
		p.Errorf("got %q", got)
	}
	c := exec.Command(p.bailey, "-q", "--runtime", Docker, "--policy", `{"filesystem": {"protectMissing": false, "denyRead": ["/etc/hosts"]}}`, "--", "cat", "/etc/hosts")
	c.Dir, c.Env = p.project, append(os.Environ(), "DOCKER_HOST="+p.engine)
	if out, err := c.Output(); err == nil || len(out) > 0 {
		p.Errorf("what is denied is seen: %q (%v)", out, err)
	}
}

func otherRoot(p *place) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		testenv.Requires(p, testenv.Program("busybox"))
	}
	text, err := os.ReadFile(program)
	if err != nil {
		p.Fatal(err)
	}
	root := p.TempDir()
	for _, dir := range []string{"/bin", "/etc"} {
		if err := os.Mkdir(root+dir, 0o755); err != nil {
			p.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"/bin/sh": text, "/etc/name": []byte("other\n"), "/etc/hosts": nil, "/etc/hostname": nil, "/etc/resolv.conf": nil} {
		if err := os.WriteFile(root+name, content, 0o755); err != nil {
			p.Fatal(err)
		}
	}
	c := p.command("sh", "-c", "read x </etc/name; echo $x; echo made >here; : >/etc/new")
	c.Args = append([]string{c.Args[0], "--rootfs", root}, c.Args[1:]...)
	out, _ := c.Output() // the last part fails
	if here, err := os.ReadFile(filepath.Join(p.project, "here")); string(out) != "other\n" || string(here) != "made\n" {
		p.Errorf("got %q, and in the project %q, %v", out, here, err)
	}
	if _, err := os.Stat(root + "/etc/new"); err == nil {
		p.Error("the root directory was written")
	}
	if err := os.Remove(root + "/etc/hosts"); err != nil {
		p.Fatal(err)
	}
	without := p.command("sh", "-c", "echo ran")
	without.Args = append([]string{without.Args[0], "--rootfs", root}, without.Args[1:]...)
	if out, err := without.CombinedOutput(); err == nil || !strings.Contains(string(out), "--rootfs "+root+": ") || !strings.Contains(string(out), "; touch "+root+"/etc/hosts,") {
		p.Errorf("a root directory without a name that the engine mounts on: %v, %s", err, out)
	}
}

func TestFilesThatAnEngineMountsOnMustBeThere(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("../nowhere", filepath.Join(dir, "resolv.conf")); err != nil {
		t.Fatal(err)
	}
	own := spec.Mount{Kind: spec.Bind, Target: "/etc/hosts", Source: "/x", File: true}
	etc := spec.Mount{Kind: spec.Bind, Target: "/etc", Source: dir, Why: "filesystem.allowRead /etc"}
	for name, c := range map[string]struct {
		spec spec.Spec
		want []string // what the refusals begin with
	}{
		"nothing is shown there":   {spec.Spec{Mounts: []spec.Mount{{Kind: spec.Bind, Target: "/usr", Source: dir}}}, nil},
		"a directory of Bailey's":  {spec.Spec{Mounts: []spec.Mount{{Kind: spec.Tmpfs, Target: "/etc"}}}, nil},
		"a grant":                  {spec.Spec{Mounts: []spec.Mount{etc}}, []string{"filesystem.allowRead /etc", "filesystem.allowRead /etc"}},
		"one of them is mounted":   {spec.Spec{Mounts: []spec.Mount{etc, own}}, []string{"filesystem.allowRead /etc"}},
		"an image":                 {spec.Spec{Mounts: []spec.Mount{etc, own}, Image: &spec.Image{Name: "i", ID: "sha256:1", Dir: dir}}, []string{"--image i"}},
		"the directory of another": {spec.Spec{Mounts: []spec.Mount{etc, own}, Image: &spec.Image{Name: "i", Dir: dir}}, []string{"--rootfs " + dir}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, u := range (&Engine{name: Docker}).ownFiles(&c.spec) {
				got = append(got, u.Key+" "+u.Value)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOrdinaryUserIsToldWhy(t *testing.T) {
	testenv.Requires(t, testenv.Unprivileged)
	for _, e := range Engines() {
		if err := e.Refuses(example()); err == nil || !strings.Contains(err.Error(), "it takes root") {
			t.Errorf("%s: got %v", e.Name(), err)
		}
	}
}

func TestEngineThatIsNotThereIsNamed(t *testing.T) {
	testenv.Requires(t, testenv.Root)
	dir := t.TempDir()
	for host, want := range map[string]string{
		"unix://" + dir + "/none": "there is no engine at " + dir + "/none",
		"tcp://127.0.0.1:1":       "has to be on this machine",
		"bad":                     "runtime docker:",
	} {
		t.Setenv("DOCKER_HOST", host)
		if err := Engines()[0].Refuses(example()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", host, err, want)
		}
	}
}

func TestOwnersAreToldApart(t *testing.T) {
	own, err := ownerName(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended, dead := endedOwner(t)
	parts := strings.Split(own, "-")
	for owner, want := range map[string]bool{
		own:                              false,
		ended:                            true,  // and nobody has taken it in
		parts[0] + "-" + parts[1] + "-1": true,  // the number was given to another
		parts[0] + "-4194304-1":          true,  // beyond any number there is
		"1-4194304-1":                    false, // of another namespace
		"1-" + parts[1] + "-" + parts[2]: false,
		"":                               false,
		parts[0] + "-x-1":                false,
		parts[0] + "-" + parts[1]:        false,
	} {
		if got := isOrphan(owner); got != want {
			t.Errorf("%q: got %v", owner, got)
		}
	}
	if err := dead.Wait(); err != nil {
		t.Error(err)
	}
}

// endedOwner is a process that has ended, and still is there for Wait.
func endedOwner(t *testing.T) (string, *exec.Cmd) {
	t.Helper()
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	owner, err := ownerName(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return owner, c
}
