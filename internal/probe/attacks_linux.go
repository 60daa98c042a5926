package probe

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/plain"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// control is something that must work in the sandbox.
type control struct {
	text string
	try  *try
	// seen says that the host must see what was made.
	seen bool
	// checked keeps the answer: what was made is removed when it is looked for.
	checked bool
	wrong   string
}

// failed returns what is wrong, or "".
func (c *control) failed(a *audit) string {
	if c.checked {
		return c.wrong
	}
	c.checked = true
	place := a.found(c.try.host)
	switch made := c.seen && place != ""; {
	case c.try.out.Errno != 0:
		c.wrong = c.text + ": " + errnoName(c.try.out.Errno)
	case c.seen && !made:
		c.wrong = c.text + ", but the host does not see it"
	case made:
		if err := a.remove(place); err != nil {
			c.wrong = place + ": remove it by hand: " + err.Error()
		}
	}
	return c.wrong
}

type controls struct{ read, write, tcp, unix, abstract, child, runs *control }

func (a *audit) control(text string, at attempt) *control {
	t := &try{attempt: at, host: string(at.Path)}
	a.tries = append(a.tries, t)
	return &control{text: text, try: t}
}

// add adds an attack.
func (a *audit) add(r row) {
	a.rows = append(a.rows, r)
	a.tries = append(a.tries, r.tries...)
}

func (a *audit) onPath(o op, name string, judge func(*audit, *try) verdict) *try {
	return &try{attempt: attempt{Op: o, Path: []byte(name)}, host: name, shown: a.short(name), judge: judge}
}

// short is a path for people: without the token, and from ~ or the project.
func (a *audit) short(name string) string {
	name, _, _ = strings.Cut(name, "/"+a.token)
	switch rest, ok := strings.CutPrefix(name, a.dir+"/"); {
	case ok:
		return plain.Text(rest)
	case a.Home != "" && spec.Covers(a.Home, name):
		return plain.Text("~" + name[len(a.Home):])
	}
	return plain.Text(name)
}

// build lists every attack that this machine has a target for.
func (a *audit) build() {
	a.scratch = "/tmp"
	if a.grantsWrite(path.Join(a.dir, a.token)) && isOpenTo(a.dir, a.Spec.Identity) {
		a.scratch, a.shared = a.dir, true
	}
	a.buildControls()
	a.buildWrites()
	a.buildReads()
	a.buildNames()
	a.buildGit()
	a.buildOwn()
	a.buildPlaces()
	a.buildNetwork()
	a.buildSockets()
	a.buildCalls()
	a.buildPrivileges()
	a.buildProcesses()
	a.finally(a.sweep)
}

// sweep removes what a prober that was ended early left.
func (a *audit) sweep() {
	for _, t := range a.tries {
		switch t.Op {
		case opCreate, opMkdir, opSymlink, opMove, opLink, opThrough:
			_ = a.remove(t.host) // nearly always there is nothing
			for _, name := range []string{string(t.Path), string(t.To)} {
				if strings.Contains(path.Base(name), a.token) {
					_ = a.remove(name)
				}
			}
		case opSetuid:
			_ = a.remove(string(t.Path))
		case opAway:
			_ = t.putBack()
		}
	}
}

// isOpenTo says whether a user without capabilities can write in a directory:
// inside, root has none.
func isOpenTo(dir string, id spec.Identity) bool {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false
	}
	const writeAndSearch = 0o3
	switch {
	case int(st.Uid) == id.UID:
		return st.Mode>>6&writeAndSearch == writeAndSearch
	case int(st.Gid) == id.GID:
		return st.Mode>>3&writeAndSearch == writeAndSearch
	}
	return st.Mode&writeAndSearch == writeAndSearch
}

func (a *audit) buildControls() {
	c := &a.controls
	made := path.Join(a.scratch, a.token+"-control")
	c.write = a.control("a file can be made in "+a.scratch, attempt{Op: opCreate, Path: []byte(made)})
	c.write.seen = a.shared
	c.read = a.control("a granted file can be read", attempt{Op: opRead, Path: []byte(program)})
	c.tcp = a.control("a connection inside works", attempt{Op: opOwnTCP})
	c.unix = a.control("a unix socket inside works", attempt{Op: opOwnUnix, Path: []byte("/tmp/" + a.token)})
	c.abstract = a.control("an abstract socket inside works", attempt{Op: opOwnUnix, Path: []byte("@" + a.token + "-own")})
	c.child = a.control("a child can be started and signalled", attempt{Op: opChild})
	c.runs = a.control("the prober runs", attempt{Op: opAnswered})
}

// buildWrites tries a directory outside of the project on every way there.
func (a *audit) buildWrites() {
	r := row{attack: "write outside the project", control: a.controls.write, absent: "the caller can write nowhere else"}
	outside := a.outside()
	for _, dir := range append(outside, a.grantedElsewhere()...) {
		r.tries = append(r.tries, a.onPath(opCreate, path.Join(dir, a.token), judgeMade))
	}
	a.add(r)
	ways := []row{{attack: "write outside through .."}, {attack: "write outside through a link"}, {attack: "write outside through /proc"}}
	for i := range ways {
		ways[i].control, ways[i].absent = a.controls.write, r.absent
	}
	if len(outside) > 0 {
		dir := outside[0]
		up, _ := filepath.Rel(a.dir, dir) // both are absolute
		for i, at := range []attempt{
			{Op: opCreate, Path: []byte(up + "/" + a.token + "-0")},
			{Op: opThrough, Path: []byte(path.Join(a.scratch, a.token+"-link")), To: []byte(path.Join(dir, a.token+"-1"))},
			{Op: opCreate, Path: []byte("/proc/self/root" + path.Join(dir, a.token+"-2"))},
		} {
			made := path.Join(dir, a.token+"-"+strconv.Itoa(i))
			ways[i].tries = []*try{{attempt: at, host: made, shown: a.short(dir), judge: judgeMade}}
		}
	}
	for _, w := range ways {
		a.add(w)
	}
}

// outside lists directories that the caller can write and the Spec does not
// grant: the nearest above the project first.
func (a *audit) outside() []string {
	var dirs []string
	add := func(dir string) {
		for _, d := range dirs {
			if d == dir {
				return
			}
		}
		if access, _ := a.Spec.Access(dir); access != spec.AccessWrite && unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
			dirs = append(dirs, dir)
		}
	}
	for d := a.dir; d != "/"; d = path.Dir(d) {
		if access, _ := a.Spec.Access(d); access != spec.AccessWrite {
			add(d)
			break
		}
	}
	for _, dir := range []string{a.Home, "/etc", "/usr/local/bin", "/var/lib"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && dir != "" {
			add(real)
		}
	}
	return dirs
}

// grantedElsewhere lists directories of the host besides the project that can
// be written.
func (a *audit) grantedElsewhere() []string {
	const enough = 4
	var dirs []string
	for i := range a.Spec.Mounts {
		m := &a.Spec.Mounts[i]
		if m.Kind != spec.Bind || !m.Write || m.File || len(dirs) == enough {
			continue
		}
		if !spec.Covers(m.Target, a.dir) && !spec.Covers(a.dir, m.Target) && unix.Access(m.Target, unix.W_OK) == nil {
			dirs = append(dirs, m.Target)
		}
	}
	return dirs
}

// secrets are what thieves look for first. A name without a slash in front is
// in the home directory.
func secrets() []struct {
	attack string
	paths  []string
} {
	return []struct {
		attack string
		paths  []string
	}{
		{"read ssh and gpg keys", []string{".ssh", ".gnupg"}},
		{"read cloud and registry credentials", []string{
			".aws", ".azure", ".config/gcloud", ".kube", ".docker", ".netrc", ".config/gh",
			".git-credentials", ".npmrc", ".pypirc", ".config/op", ".password-store",
		}},
		{"read browser profiles", []string{".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"}},
		{"read shell history", []string{".bash_history", ".zsh_history", ".local/share/fish/fish_history", ".python_history"}},
		{"read password hashes and host keys", []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private"}},
	}
}

func (a *audit) buildReads() {
	for _, s := range secrets() {
		r := row{attack: s.attack, control: a.controls.read, absent: "there are none that the caller can read"}
		for _, name := range s.paths {
			if !path.IsAbs(name) {
				if a.Home == "" {
					continue
				}
				name = path.Join(a.Home, name)
			}
			if unix.Access(name, unix.R_OK) == nil {
				r.tries = append(r.tries, a.onPath(opRead, name, judgeOpened))
			}
		}
		a.add(r)
	}
}

// buildNames tries names that something outside acts on, each made another way.
func (a *audit) buildNames() {
	for _, n := range []struct {
		name string
		how  op
	}{
		{".envrc", opCreate}, {".mcp.json", opMove}, {".vscode", opMkdir}, {".bashrc", opLink}, {".zshrc", opSymlink}, {".git", opMkdir}, {"bailey.jsonc", opCreate},
	} {
		name := path.Join(a.dir, n.name)
		r := row{attack: "create " + n.name, control: a.controls.write}
		switch info, err := os.Lstat(name); {
		case err != nil:
			t := a.onPath(n.how, name, judgeMade)
			t.To = []byte(path.Join(a.dir, a.token+"-"+n.name))
			if !a.shared && (n.how == opMove || n.how == opLink) {
				t.Op = opCreate // there is no place for a file to begin with
			}
			r.tries = []*try{t}
		case n.name == ".git":
			r.absent = "there is one"
		case info.IsDir():
			r.attack = "write in " + n.name
			r.tries = []*try{a.onPath(opCreate, path.Join(name, a.token), judgeMade)}
		default:
			r.attack = "write " + n.name
			r.tries = []*try{a.onPath(opWrite, name, judgeOpened)}
		}
		a.add(r)
	}
}

func (a *audit) buildGit() {
	rename := row{attack: "rename .git away", control: a.controls.write, absent: "there is no repository here"}
	hook := row{attack: "plant a git hook", control: a.controls.write, absent: rename.absent}
	for d := a.dir; d != "/"; d = path.Dir(d) {
		git := path.Join(d, ".git")
		info, err := os.Lstat(git)
		if err != nil {
			continue
		}
		t := a.onPath(opAway, git, judgeAway)
		t.To = []byte(path.Join(d, a.token+"-git"))
		rename.tries = []*try{t}
		hooks := path.Join(git, "hooks")
		switch {
		case !info.IsDir():
			hook.tries = []*try{a.onPath(opWrite, git, judgeOpened)}
		case exists(hooks):
			hook.tries = []*try{a.onPath(opCreate, path.Join(hooks, a.token), judgeMade)}
		default:
			hook.tries = []*try{a.onPath(opMkdir, hooks, judgeMade)}
		}
		break
	}
	a.add(rename)
	a.add(hook)
}

// buildOwn tries what decides the next run.
func (a *audit) buildOwn() {
	files := row{attack: "write the policy file", control: a.controls.write, absent: "the policy is in no file"}
	for _, name := range a.PolicyFiles {
		if exists(name) {
			files.tries = append(files.tries, a.onPath(opWrite, name, judgeOpened))
		}
	}
	a.add(files)
	dirs := row{attack: "write the trust store", control: a.controls.write, absent: "there is none"}
	for _, dir := range a.OwnDirs {
		switch {
		case exists(dir):
			dirs.tries = append(dirs.tries, a.onPath(opCreate, path.Join(dir, a.token), judgeMade))
		case exists(path.Dir(dir)):
			dirs.tries = append(dirs.tries, a.onPath(opMkdir, dir, judgeMade))
		}
	}
	a.add(dirs)
	a.add(row{attack: "replace bailey itself", control: a.controls.write, tries: []*try{
		a.onPath(opChmod, a.Program, judgeOpened),
		a.onPath(opCreate, path.Join(path.Dir(a.Program), a.token), judgeMade),
	}})
}

// buildPlaces tries what all programs of a host share, and the kernel's files.
func (a *audit) buildPlaces() {
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run"} {
		r := row{attack: "reach the host's " + dir, control: a.controls.write, absent: "the host has none"}
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			r.tries = append(r.tries, a.onPath(opInode, real, judgeInode))
			if unix.Access(real, unix.W_OK) == nil {
				r.tries = append(r.tries, a.onPath(opCreate, path.Join(real, a.token+"-shared"), judgeMade))
			}
		}
		a.add(r)
	}
	for _, k := range []struct {
		attack string
		files  []string
	}{
		{"write kernel settings in /proc", []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"}},
		{"write kernel settings in /sys", []string{"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs", "/sys/module/kernel/parameters/panic"}},
	} {
		r := row{attack: k.attack, control: a.controls.write, absent: "the host has none of them"}
		for _, name := range k.files {
			if exists(name) {
				r.tries = append(r.tries, a.onPath(opWrite, name, judgeOpened))
			}
		}
		a.add(r)
	}
}

func (a *audit) buildNetwork() {
	for _, k := range []struct {
		attack, host string
		kind         int
		how          op
	}{
		{"TCP to the host's 127.0.0.1", "127.0.0.1", unix.SOCK_STREAM, opTCP},
		{"TCP to the host's ::1", "::1", unix.SOCK_STREAM, opTCP},
		{"UDP to the host's 127.0.0.1", "127.0.0.1", unix.SOCK_DGRAM, opUDP},
		{"UDP to the host's ::1", "::1", unix.SOCK_DGRAM, opUDP},
	} {
		r := row{attack: k.attack, control: a.controls.tcp, absent: "the host has no such address"}
		if fd, port, err := listen(k.host, k.kind); err == nil {
			a.finally(func() { _ = unix.Close(fd) })
			r.tries = []*try{{attempt: attempt{Op: k.how, Path: []byte(k.host), Number: port}, shown: "port " + strconv.Itoa(port), judge: judgeHeard(fd, k.kind)}}
		}
		a.add(r)
	}
	for _, k := range []struct {
		attack, host string
		port         int
	}{
		{"reach the metadata service", "169.254.169.254", 80},
		{"reach another machine", "192.0.2.1", 443},
		{"ask a name server", "192.0.2.1", 53},
	} {
		r := row{attack: k.attack, control: a.controls.tcp}
		if a.opensNetwork() {
			r.fixed = []verdict{{Granted, "", k.host, "not tried, the policy opens the network"}}
			a.add(r)
			continue
		}
		for _, how := range []op{opTCP, opUDP} {
			r.tries = append(r.tries, &try{
				attempt: attempt{Op: how, Path: []byte(k.host), Number: k.port},
				shown:   k.host + " " + string(how), judge: judgeFar,
			})
		}
		a.add(r)
	}
}

// buildSockets opens an abstract socket and one in the project, and looks for
// those that lead to daemons.
func (a *audit) buildSockets() {
	abstract := row{attack: "abstract unix socket of the host", control: a.controls.abstract, absent: "none could be made"}
	if a.opensNetwork() {
		abstract.control = a.controls.unix // there, not even its own can be reached
	}
	name := "@" + a.token
	if fd, err := listenUnix(name); err == nil {
		a.finally(func() { _ = unix.Close(fd) })
		abstract.tries = []*try{{attempt: attempt{Op: opUnix, Path: []byte(name)}, host: name, shown: "a listener of the audit", judge: judgeHostSocket(fd)}}
	}
	a.add(abstract)
	here := row{attack: "unix socket in the project", control: a.controls.unix, absent: "none could be made here"}
	if fd, t := a.listenHere(); t != nil {
		a.finally(func() { _ = unix.Close(fd); _ = unix.Unlink(t.host) })
		here.tries = []*try{t}
	}
	a.add(here)
	daemons := row{attack: "unix sockets of daemons", control: a.controls.unix, absent: "there are none that the caller can reach"}
	for _, name := range a.daemonSockets() {
		if real, err := filepath.EvalSymlinks(name); err == nil && unix.Access(real, unix.W_OK) == nil {
			daemons.tries = append(daemons.tries, a.onPath(opUnix, real, judgeHostSocket(-1)))
		}
	}
	a.add(daemons)
}

// listenHere listens in the directory that the prober starts in. Both sides name
// the socket from there: a whole path may be too long for an address.
func (a *audit) listenHere() (int, *try) {
	dir, err := unix.Open(a.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil
	}
	defer func() { _ = unix.Close(dir) }()
	name := a.token + "-socket"
	fd, err := listenUnix("/proc/self/fd/" + strconv.Itoa(dir) + "/" + name)
	if err != nil {
		return -1, nil
	}
	return fd, &try{
		attempt: attempt{Op: opUnix, Path: []byte(name)},
		host:    path.Join(a.dir, name), shown: "a listener of the audit", judge: judgeHostSocket(fd),
	}
}

func (a *audit) daemonSockets() []string {
	names := []string{"/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/tmp/.X11-unix/X0"}
	if name := os.Getenv("SSH_AUTH_SOCK"); path.IsAbs(name) {
		names = append(names, name)
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); path.IsAbs(dir) {
		names = append(names, path.Join(dir, "bus"), path.Join(dir, "docker.sock"), path.Join(dir, "gnupg/S.gpg-agent"))
	}
	return names
}

func (a *audit) buildCalls() {
	attacks := map[string]string{
		"mount": "mount a file system", "fsopen": "mount by the new calls", "unshare": "make a user namespace", "setns": "enter a namespace",
		"keyctl": "use the user's keyrings", "bpf": "load BPF", "perf_event_open": "watch by perf events", "io_uring_setup": "use io_uring",
		"userfaultfd": "handle page faults", "open_by_handle_at": "open files by handle", "init_module": "load a kernel module", "kexec_load": "load another kernel",
	}
	for _, c := range calls() {
		t := &try{attempt: attempt{Op: opCall, Path: []byte(c.name)}, shown: c.name, judge: judgeCall(c.makeBadly())}
		a.add(row{attack: attacks[c.name], control: a.controls.child, tries: []*try{t}})
	}
	for _, k := range socketKinds() {
		t := &try{attempt: attempt{Op: opSocket, Path: []byte(k.name)}, shown: "socket", judge: judgeSocket}
		a.add(row{attack: k.name + " socket", tries: []*try{t}})
	}
	const onlyThere = "only amd64 has them"
	x32Row := row{attack: "x32 system calls", control: a.controls.runs, absent: onlyThere}
	int80Row := row{attack: "32-bit system calls", control: a.controls.child, absent: onlyThere}
	if otherTables {
		x32Row.tries = []*try{{attempt: attempt{Op: opX32}, shown: "getpid", judge: judgeX32(x32())}}
		int80Row.tries = []*try{{attempt: attempt{Op: opInt80}, shown: "getpid", judge: judgeInt80}}
	}
	a.add(x32Row)
	a.add(int80Row)
	a.add(row{attack: "type into a terminal", tries: []*try{{attempt: attempt{Op: opType}, shown: "TIOCSTI", judge: judgeFiltered(WallKernel)}}})
	a.add(row{attack: "leave a setuid program", control: a.controls.write, tries: []*try{
		{attempt: attempt{Op: opSetuid, Path: []byte(path.Join(a.scratch, a.token+"-setuid"))}, shown: "chmod", judge: judgeFiltered(WallMount)},
	}})
	a.add(row{attack: "make a device node", control: a.controls.write, tries: []*try{
		{attempt: attempt{Op: opNode, Path: []byte("/tmp/" + a.token + "-node")}, shown: "mknod", judge: judgeFiltered(WallCapabilities)},
	}})
}

func (a *audit) buildPrivileges() {
	status := func(judge func(*audit, *try) verdict) []*try {
		return []*try{{attempt: attempt{Op: opStatus}, shown: "/proc/self/status", judge: judge}}
	}
	a.add(row{attack: "use a capability", control: a.controls.runs, tries: status(judgeStatus(0, 4, "", WallCapabilities))})
	a.add(row{attack: "gain privileges by executing", control: a.controls.runs, tries: status(judgeStatus(5, 5, "1", "no_new_privs"))})
	a.add(row{attack: "make unfiltered system calls", control: a.controls.runs, tries: status(judgeStatus(6, 6, "2", WallSeccomp))})
	a.add(row{attack: "share a namespace with the host", control: a.controls.runs, tries: []*try{{attempt: attempt{Op: opSpaces}, shown: "/proc/self/ns", judge: judgeSpaces}}})
	a.add(row{attack: "use inherited descriptors", tries: []*try{
		{attempt: attempt{Op: opInherited}, shown: "fcntl", judge: judgeNone(WallDescriptors, "nothing but 0, 1 and 2 came in; one more was open outside")},
	}})
	a.add(row{attack: "read secrets in variables", tries: []*try{{attempt: attempt{Op: opVariables}, shown: "environment", judge: judgeVariables}}})
}

func (a *audit) buildProcesses() {
	one := func(o op, shown string) []*try {
		return []*try{{attempt: attempt{Op: o, Number: 1}, shown: shown, judge: judgeProcessOne}}
	}
	a.add(row{attack: "trace process 1", control: a.controls.child, tries: one(opTrace, "ptrace")})
	a.add(row{attack: "read the memory of process 1", control: a.controls.child, tries: append(one(opPeek, "process_vm_readv"),
		a.onPath(opRead, "/proc/1/mem", judgeProcessOne), a.onPath(opRead, "/proc/1/environ", judgeProcessOne))})
	a.add(row{attack: "see processes of the host", control: a.controls.child, tries: []*try{
		{attempt: attempt{Op: opProcesses}, shown: "/proc", judge: judgeNone(WallProcesses, "/proc has only the sandbox's own")},
	}})
	signal := row{attack: "signal a process of the host", control: a.controls.child, absent: "its number could be one inside"}
	const few = 100 // the prober and its children have lower numbers
	if pid := max(os.Getpid(), a.pid); pid > few {
		signal.tries = []*try{
			{attempt: attempt{Op: opKill, Number: pid}, shown: "kill", judge: judgeHostProcess},
			{attempt: attempt{Op: opPidfd, Number: pid}, shown: "pidfd_open", judge: judgeHostProcess},
		}
	}
	a.add(signal)
	// Last, since it stays.
	a.add(row{attack: "outlive the sandbox", control: a.controls.child, tries: []*try{{attempt: attempt{Op: opLinger}, judge: judgeLinger}}})
}
