package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	base "github.com/bailey-sandbox/bailey/internal/bench"
	"github.com/bailey-sandbox/bailey/internal/bench/walls"
)

// bench is one run.
type bench struct {
	options
	project  string // with the probe and the tree, for commands
	root     string // of the bundles
	keeper   string // directory of its socket
	what     string // that root is
	load     string
	subjects []*subject
}

// subject is a way to run commands that is measured.
type subject struct {
	seen walls.Runtime
	// namesake says that the command has the caller's id inside.
	namesake bool
	// bounded says that it holds the limits.
	bounded bool
	launch  func(probe []string) (*launch, error)
	// cold, exec and pool launch in other modes, and are nil where there is no such.
	cold, exec, pool func(probe []string) (*launch, error)
	memory           func() (*walls.Memory, error)
	tree             string // inside

	samples  map[string]map[string][]float64 // by mode and phase
	attempts map[string]int
	reasons  map[string][]string
	failures map[string]int
}

func newBench(o *options) (*bench, error) {
	b := &bench{options: *o, project: filepath.Join(o.work, "project"), root: filepath.Join(o.work, "rootfs"), keeper: filepath.Join(o.work, "keeper")}
	load, _ := os.ReadFile("/proc/loadavg") // a machine without says nothing
	b.load = strings.Join(strings.Fields(string(load))[:min(3, len(strings.Fields(string(load))))], " ")
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(b.keeper, 0o700); err != nil {
		return nil, err
	}
	if err := makeProject(b.project); err != nil {
		return nil, err
	}
	if err := copyFile(self, filepath.Join(b.project, "probe"), 0o755); err != nil {
		return nil, err
	}
	if b.what, err = stageRoot(o, b.root); err != nil {
		return nil, err
	}
	b.choose()
	return b, nil
}

// makeProject makes a directory that Bailey takes for a project, whatever it lies in, with
// the tree that is walked through.
func makeProject(dir string) error {
	for _, name := range []string{".git/objects", ".git/refs"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
		return err
	}
	return plant(filepath.Join(dir, "tree"))
}

// choose makes the subjects of what was asked for.
func (b *bench) choose() {
	b.add(&subject{seen: walls.Runtime{Name: walls.Unsandboxed, Control: true}}, &calling{})
	for _, name := range b.runtimes {
		switch name {
		case "native":
			s, c := b.throughBailey(name)
			b.add(s, c)
			s.exec = c.with("--keep", "bench").launch
		case "docker", "docker+runsc":
			b.add(b.throughBailey(name))
		case "bwrap":
			b.add(b.bwrapByHand())
			b.add(b.throughBailey(name))
		default:
			b.addBundled(name)
		}
	}
}

// add adds a subject that is a command.
func (b *bench) add(s *subject, c *calling) {
	c.dir, c.env = b.project, b.environ()
	s.launch, s.tree = c.launch, filepath.Join(b.project, "tree")
	s.memory = func() (*walls.Memory, error) {
		pid, end, err := c.idle()
		if err != nil {
			return nil, err
		}
		defer end()
		return memoryOf(pid, true), nil
	}
	s.seen.Command = strings.Join(append(c.argv, "PROBE"), " ")
	if len(c.argv) > 0 {
		if _, err := exec.LookPath(c.argv[0]); err != nil {
			s.seen.Missing = err.Error()
		}
	}
	b.subjects = append(b.subjects, s)
}

// throughBailey is the command with a runtime.
func (b *bench) throughBailey(name string) (*subject, *calling) {
	argv := []string{
		filepath.Join(b.bin, "bailey"), "--quiet", "--runtime", name,
		"--policy", `{"filesystem": {"protectMissing": false}}`,
	}
	if b.memoryMB > 0 {
		argv = append(argv, "--memory", strconv.Itoa(b.memoryMB)+"M", "--cpu", strconv.FormatFloat(b.cpus, 'g', -1, 64))
	}
	s := &subject{seen: walls.Runtime{Name: "bailey " + name}, bounded: b.memoryMB > 0, namesake: name == "native" || name == "bwrap"}
	return s, &calling{argv: append(argv, "--")}
}

// with is the same command with more flags.
func (c *calling) with(flags ...string) *calling {
	more := *c
	more.argv = slices.Insert(slices.Clone(c.argv), len(c.argv)-1, flags...)
	return &more
}

// environ gives the bench a keeper of its own.
func (b *bench) environ() []string { return append(os.Environ(), "XDG_RUNTIME_DIR="+b.keeper) }

// close ends what stays between launches.
func (b *bench) close() {
	c := exec.Command(filepath.Join(b.bin, "bailey"), "box", "stop", "--all")
	c.Env = b.environ()
	_ = c.Run() // there may be nothing
}

// bwrapByHand has about the same walls, as far as flags go: it is there for its time.
func (b *bench) bwrapByHand() (*subject, *calling) {
	return &subject{seen: walls.Runtime{Name: "bwrap", Control: true}}, &calling{argv: []string{
		"bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", b.project, b.project,
	}}
}

// addBundled adds an OCI runtime, by hand and through Bailey, which chooses gVisor's
// platform itself.
func (b *bench) addBundled(name string) {
	program, platform, _ := strings.Cut(name, "-")
	known := map[string]string{"runc": "runc", "crun": "crun", "runsc": "gvisor"}[program]
	s := &subject{seen: walls.Runtime{Name: name}, tree: treePath, bounded: b.memoryMB > 0}
	b.subjects = append(b.subjects, s)
	path, err := find(program, b.bin)
	if err != nil {
		s.seen.Missing = err.Error()
		return
	}
	r := &bundled{runtime: known, program: path, platform: platform}
	if r.spec, err = bundleSpec(b.root, known, &b.options); err != nil {
		s.seen.Missing = err.Error()
		return
	}
	s.seen.Command = path + " create, start and delete of a bundle by Bailey's writer"
	if platform != "" {
		s.seen.Command += ", --platform=" + platform
	}
	s.launch, s.exec, s.memory = r.launch, r.exec, r.memory
	if os.Geteuid() == 0 && !b.warmOnly {
		s.cold = func(probe []string) (*launch, error) { return b.coldly(r, probe) }
	}
	if platform == "ptrace" {
		return
	}
	through, c := b.throughBailey(known)
	b.add(through, c)
	waits := c.with("--debug", "--pool", "--idle-timeout", "2m")
	waits.says = "built before there was a command"
	through.pool = waits.launch
}

// find finds a runtime, in PATH or beside Bailey.
func find(program, bin string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath(filepath.Join(bin, program)); err == nil {
		return filepath.Abs(path)
	}
	fix := "install it"
	if program == "runsc" {
		fix = "build it with scripts/build-runsc, and put it in PATH"
	}
	return "", fmt.Errorf("%s is not installed; %s", program, fix)
}

// coldly launches in a root directory that was made for it, and that the kernel has not
// read yet.
func (b *bench) coldly(r *bundled, probe []string) (*launch, error) {
	dir, err := os.MkdirTemp(b.work, "cold")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := copyTree(b.root, dir); err != nil {
		return nil, err
	}
	fresh := *r
	if fresh.spec, err = bundleSpec(dir, r.runtime, &b.options); err != nil {
		return nil, err
	}
	if err := dropCaches(); err != nil {
		return nil, err
	}
	return fresh.launch(probe)
}

// measure asserts the boundaries, and then measures those that stand.
func (b *bench) measure() error {
	for _, s := range b.subjects {
		s.samples, s.attempts = map[string]map[string][]float64{}, map[string]int{}
		s.failures, s.reasons = map[string]int{}, map[string][]string{}
		if s.seen.Missing == "" {
			b.assert(s)
		}
	}
	var standing []*subject
	for _, s := range b.subjects {
		if s.seen.Missing == "" && (s.seen.Control || !slices.ContainsFunc(s.seen.Walls, func(w walls.Wall) bool { return !w.Held })) {
			standing = append(standing, s)
		}
	}
	if err := controlled(b.subjects[0]); err != nil {
		return err
	}
	for i := range b.iterations + 1 {
		b.iterate(standing, i)
	}
	for _, s := range standing {
		if m, err := s.memory(); err == nil {
			s.seen.Memory = m
		} else {
			s.fail("memory", err)
		}
	}
	return nil
}

// controlled wants the probe to see that nothing stands where nothing does: otherwise
// what it sees elsewhere shows nothing.
func controlled(s *subject) error {
	if s.seen.Missing != "" {
		return fmt.Errorf("the probe fails outside of any sandbox: %s", s.seen.Missing)
	}
	for _, name := range []string{"no new privileges", "system call filter"} {
		for _, w := range s.seen.Walls {
			if w.Name == name && w.Held {
				return fmt.Errorf("outside of any sandbox the probe sees a wall (%s): what it sees inside shows nothing; run the bench outside of sandboxes", name)
			}
		}
	}
	return nil
}

// assert looks at a boundary from inside.
func (b *bench) assert(s *subject) {
	l, err := s.launch([]string{"look"})
	if err != nil {
		s.seen.Missing = "could not start: " + err.Error()
		return
	}
	var view walls.View
	if err := json.Unmarshal(l.out, &view); err != nil {
		s.seen.Missing = "the probe inside: " + err.Error()
		return
	}
	bounds := walls.Bounds{}
	if s.bounded {
		bounds = b.bounds(s)
	}
	s.seen.Walls = walls.Judge(&view, &bounds, s.namesake || os.Geteuid() != 0)
}

// bounds tries the limits.
func (b *bench) bounds(s *subject) walls.Bounds {
	got := walls.Bounds{MemoryMB: b.memoryMB, CPUs: b.cpus}
	has := func(mb int) bool {
		l, err := s.launch([]string{"allocate", strconv.Itoa(mb)})
		return err == nil && strings.Contains(string(l.out), "had "+strconv.Itoa(mb))
	}
	got.Below, got.Beyond = has(b.memoryMB/2), has(2*b.memoryMB)
	if l, err := s.launch([]string{"busy"}); err == nil {
		got.Busy, _ = strconv.ParseFloat(strings.TrimSpace(string(l.out)), 64)
	}
	return got
}

// iterate launches everything once, each time beginning with another. The first round is
// discarded.
func (b *bench) iterate(list []*subject, round int) {
	for i := range list {
		s := list[(i+round)%len(list)]
		for mode, do := range s.modes() {
			l, err := do([]string{"nothing"})
			s.count(mode, l, err, round > 0)
		}
		for name, args := range map[string][]string{"integer loop": {"cpu"}, "stat walk": {"stat", s.tree}} {
			l, err := s.launch(args)
			s.countWork(name, l, err, round > 0)
		}
	}
}

func (s *subject) modes() map[string]func([]string) (*launch, error) {
	all := map[string]func([]string) (*launch, error){walls.Warm: s.launch, walls.Cold: s.cold, walls.Exec: s.exec, walls.Pool: s.pool}
	for mode, do := range all {
		if do == nil {
			delete(all, mode)
		}
	}
	return all
}

// count takes in a launch.
func (s *subject) count(mode string, l *launch, err error, counts bool) {
	if !counts {
		return
	}
	s.attempts[mode]++
	if err != nil {
		s.fail(mode, err)
		return
	}
	if s.samples[mode] == nil {
		s.samples[mode] = map[string][]float64{}
	}
	for phase, took := range l.phases {
		s.samples[mode][phase] = append(s.samples[mode][phase], float64(took)/float64(time.Millisecond))
	}
}

func (s *subject) fail(mode string, err error) {
	s.failures[mode]++
	if text := err.Error(); !slices.Contains(s.reasons[mode], text) && len(s.reasons[mode]) < 5 {
		s.reasons[mode] = append(s.reasons[mode], text)
	}
}

// countWork takes in what the probe timed itself.
func (s *subject) countWork(name string, l *launch, err error, counts bool) {
	if !counts {
		return
	}
	took := 0.0
	if err == nil {
		took, err = strconv.ParseFloat(strings.TrimSpace(string(l.out)), 64)
	}
	s.count(name, &launch{phases: map[string]time.Duration{name: time.Duration(took * float64(time.Millisecond))}}, err, true)
}

// operations of the work.
var operations = map[string]int{"integer loop": cpuRounds, "stat walk": 1 + statDirs + statDirs*statFiles}

// results is everything that was seen.
func (b *bench) results() *walls.Results {
	r := &walls.Results{
		Version: walls.Version, Time: time.Now().UTC().Format(time.RFC3339), Commit: b.commit, User: userName(), Iterations: b.iterations,
		MemoryMB: b.memoryMB, CPUs: b.cpus, Rootfs: b.what, Machine: machine(b.load), Programs: b.versions(),
	}
	for _, s := range b.subjects {
		for _, mode := range []string{walls.Cold, walls.Warm, walls.Exec, walls.Pool, "memory"} {
			if s.attempts[mode] > 0 || s.failures[mode] > 0 {
				s.seen.Launch = append(s.seen.Launch, s.launches(mode))
			}
		}
		for _, name := range []string{"integer loop", "stat walk"} {
			if s.attempts[name] > 0 {
				s.seen.Work = append(s.seen.Work, s.work(name))
			}
		}
		r.Runtimes = append(r.Runtimes, s.seen)
	}
	return r
}

func (s *subject) launches(mode string) walls.Launch {
	l := walls.Launch{Mode: mode, Attempts: max(s.attempts[mode], s.failures[mode]), Failures: s.failures[mode], Reasons: s.reasons[mode]}
	for _, phase := range walls.Phases {
		if samples := s.samples[mode][phase]; samples != nil {
			l.Phases = append(l.Phases, walls.Time(phase, samples))
		}
	}
	return l
}

func (s *subject) work(name string) walls.Work {
	w := walls.Work{Operations: operations[name], Attempts: s.attempts[name], Failures: s.failures[name], Timed: walls.Time(name, s.samples[name][name])}
	if reasons := s.reasons[name]; len(reasons) > 0 {
		w.Reason = reasons[len(reasons)-1]
	}
	return w
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// versions are those of what took part.
func (b *bench) versions() map[string]string {
	list := map[string]string{"go": runtime.Version()}
	for _, s := range b.subjects {
		name, _, _ := strings.Cut(s.seen.Name, "-")
		var program string
		switch {
		case s.seen.Missing != "" || name == walls.Unsandboxed:
			continue
		case strings.HasPrefix(name, "bailey"):
			name, program = "bailey", filepath.Join(b.bin, "bailey")
		default:
			program, _ = find(name, b.bin)
		}
		list[name] = versionOf(program)
	}
	return list
}

// versionOf is what a program says of itself, and where it was built from a module that
// one's version: not every program knows its own.
func versionOf(program string) string {
	out, _ := exec.Command(program, "--version").Output() // which need not succeed
	text := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", ", ")
	if info, err := buildinfo.ReadFile(program); err == nil && info.Main.Version != "" && info.Main.Version != "(devel)" {
		text += " (" + info.Main.Path + "@" + info.Main.Version + ")"
	}
	return text
}

// machine is where it ran.
func machine(load string) base.Machine {
	return base.Machine{
		Kernel:    firstLine("/proc/sys/kernel/ostype", "") + " " + firstLine("/proc/sys/kernel/osrelease", "") + " " + runtime.GOARCH,
		Processor: firstLine("/proc/cpuinfo", "model name"), Processors: runtime.NumCPU(),
		Memory: firstLine("/proc/meminfo", "MemTotal"), Load: load,
		Governor: orNone(firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "")),
	}
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// firstLine is the first line of a file, or what stands behind a name in it.
func firstLine(file, name string) string {
	text, _ := os.ReadFile(file) // what is missing is left out
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, ":")
		switch {
		case name == "":
			return strings.TrimSpace(line)
		case strings.TrimSpace(before) == name:
			return strings.TrimSpace(after)
		}
	}
	return ""
}
