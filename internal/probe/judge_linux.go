package probe

import (
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// try is an attempt of the prober's, and how it is judged here.
type try struct {
	attempt
	host  string // what it is about, as the host calls it
	shown string // the same for people
	judge func(*audit, *try) verdict
	out   outcome
}

// verdict is what became of a try.
type verdict struct {
	result Result
	wall   Wall
	about  string // what it was tried on, if that needs saying
	how    string
}

func (t *try) stopped(w Wall, how string) verdict { return verdict{Stopped, w, t.shown, how} }

func (t *try) is(r Result, how string) verdict { return verdict{r, "", t.shown, how} }

// reached is the verdict about something that worked.
func (t *try) reached(granted bool, how string) verdict {
	if granted {
		return t.is(Granted, how)
	}
	return t.is(Through, how)
}

// row is an attack: one line of the report.
type row struct {
	attack string
	tries  []*try
	// control must have worked; nil if every try brings its own.
	control *control
	// fixed are verdicts that need no try.
	fixed []verdict
	// absent says why there is nothing to try, if there is nothing.
	absent string
}

func (a *audit) report() Report {
	var r Report
	for i := range a.rows {
		r = append(r, a.finding(&a.rows[i]))
	}
	return r
}

// finding sums up an attack: the worst of its tries decides.
func (a *audit) finding(r *row) Finding {
	f := Finding{Attack: r.attack}
	verdicts := slices.Clone(r.fixed)
	for _, t := range r.tries {
		verdicts = append(verdicts, a.judge(r, t))
	}
	if len(verdicts) == 0 {
		f.Result, f.How = Absent, r.absent
		return f
	}
	worst := slices.MinFunc(verdicts, func(x, y verdict) int { return x.result.rank() - y.result.rank() })
	f.Result = worst.result
	if r.control != nil && f.Result != Absent {
		f.Control = r.control.text
	}
	verdicts = slices.DeleteFunc(verdicts, func(v verdict) bool { return v.result != worst.result })
	f.Wall, f.How = wallsOf(verdicts), reasonsOf(verdicts)
	return f
}

func wallsOf(verdicts []verdict) string {
	var walls []string
	for _, v := range verdicts {
		if w := string(v.wall); w != "" && !slices.Contains(walls, w) {
			walls = append(walls, w)
		}
	}
	return strings.Join(walls, ", ")
}

// reasonsOf says each reason once, after everything that it is about.
func reasonsOf(verdicts []verdict) string {
	var reasons []string
	about := map[string][]string{}
	for _, v := range verdicts {
		if !slices.Contains(reasons, v.how) {
			reasons = append(reasons, v.how)
		}
		if v.about != "" && !slices.Contains(about[v.how], v.about) {
			about[v.how] = append(about[v.how], v.about)
		}
	}
	for i, how := range reasons {
		if list := about[how]; len(list) > 0 {
			reasons[i] = strings.Join(list, ", ") + ": " + how
		}
	}
	return strings.Join(reasons, "; ")
}

// judge holds a try to be stopped only if something alike worked.
func (a *audit) judge(r *row, t *try) verdict {
	v := t.judge(a, t)
	if v.result != Stopped {
		return v
	}
	if r.control != nil {
		if text := r.control.failed(a); text != "" {
			return t.is(Unclear, "the control failed: "+text)
		}
	}
	if t.out.Control != 0 {
		return t.is(Unclear, "its control failed: "+errnoName(t.out.Control))
	}
	return v
}

func errnoName(n int) string {
	if name := unix.ErrnoName(unix.Errno(n)); name != "" {
		return name
	}
	return "no error"
}

// judgeMade looks on the host for what the prober tried to make, and removes it.
func judgeMade(a *audit, t *try) verdict {
	if place := a.found(t.host); place != "" {
		how := "made on the host, and removed again"
		if err := a.remove(place); err != nil {
			how = "made on the host; remove it by hand: " + err.Error()
		}
		return t.reached(a.grantsWrite(t.host), how)
	}
	if t.out.Errno == 0 {
		return t.stopped(WallMount, "made in memory, not on the host")
	}
	return a.refusal(t)
}

// found says where on the host something is that the prober made at a path: there,
// or if changes are kept apart, among those, from where they are applied. It is
// empty if it is nowhere.
func (a *audit) found(name string) string {
	if exists(name) {
		return name
	}
	if over := a.Spec.Overlay; over.Covers(name) {
		if kept := over.Upper + strings.TrimPrefix(name, over.Source); exists(kept) {
			return kept
		}
	}
	return ""
}

// remove removes what the prober made. What does not carry the audit's name must
// hold its token and nothing else.
func (a *audit) remove(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return unix.Rmdir(name)
	case strings.Contains(path.Base(name), a.token):
	case info.Mode()&os.ModeSymlink != 0:
		if text, err := os.Readlink(name); err != nil || text != a.token {
			return unix.EEXIST
		}
	default:
		if data, err := os.ReadFile(name); err != nil || string(data) != a.token {
			return unix.EEXIST
		}
	}
	return unix.Unlink(name)
}

// judgeOpened is for files that exist on the host, which the prober opened.
func judgeOpened(a *audit, t *try) verdict {
	if t.out.Errno != 0 {
		return a.refusal(t)
	}
	if t.Op == opRead {
		return t.reached(a.grantsRead(t.host), "can be read")
	}
	// Only what is the host's own file can be written there.
	if host, err := inodeOf(t.host); err == nil && !slices.Contains(t.out.Values, host) {
		return t.stopped(WallMount, "not the host's inside")
	}
	return t.reached(a.grantsWrite(t.host), "can be written")
}

// judgeAway puts back what the prober renamed and could not put back itself.
func judgeAway(a *audit, t *try) verdict {
	from := t.host
	if err := t.putBack(); err != nil {
		return t.is(Through, "put it back by hand: "+err.Error())
	}
	if t.out.Errno != 0 {
		return a.refusal(t)
	}
	covered := slices.ContainsFunc(a.Spec.Mounts, func(m spec.Mount) bool { return spec.Covers(from, m.Target) })
	return t.reached(!covered && a.grantsWrite(from), "renamed, and put back")
}

// putBack undoes a renaming.
func (t *try) putBack() error {
	if to := string(t.To); !exists(t.host) && exists(to) {
		return os.Rename(to, t.host)
	}
	return nil
}

// judgeInode compares a directory inside with the one the host has there.
func judgeInode(a *audit, t *try) verdict {
	host, err := inodeOf(t.host)
	switch {
	case t.out.Errno != 0:
		return a.refusal(t)
	case err == nil && slices.Contains(t.out.Values, host):
		return t.reached(a.grantsRead(t.host), "is the host's")
	}
	return t.stopped(WallMount, "not the host's inside")
}

// refusal says which wall refused something about a file.
func (a *audit) refusal(t *try) verdict {
	name := errnoName(t.out.Errno)
	if d := a.denial(t.host); d != nil {
		return t.stopped(WallBroker, name+", "+d.Why)
	}
	switch unix.Errno(t.out.Errno) {
	case unix.ENOENT, unix.ENOTDIR:
		return t.stopped(WallMount, "does not exist inside")
	case unix.EROFS:
		return t.stopped(WallMount, "read-only inside")
	case unix.EBUSY, unix.EXDEV:
		return t.stopped(WallMount, name+", is a mount of its own")
	case unix.EACCES, unix.EPERM:
		return a.forbidden(t)
	}
	return t.is(Unclear, name)
}

// forbidden tells apart what answers EACCES: access(2) knows of mounts and
// permissions, not of Landlock.
func (a *audit) forbidden(t *try) verdict {
	how := errnoName(t.out.Errno)
	_, m := a.Spec.Access(t.host)
	switch {
	case m != nil && m.Kind == spec.Hide:
		return t.stopped(WallMount, "hidden by an empty one")
	case m == nil || m.Kind == spec.Tmpfs || m.Kind == spec.Dir:
		return t.stopped(WallMount, "not the host's inside, and closed")
	case t.out.Second == 0:
		return t.stopped(WallLandlock, how)
	case t.out.Second == int(unix.EROFS):
		return t.stopped(WallMount, "read-only inside")
	}
	return t.stopped(WallPermissions, how)
}

// judgeProcessOne is for what leads into the memory of process 1.
func judgeProcessOne(_ *audit, t *try) verdict {
	if t.out.Errno == 0 {
		return t.is(Through, "worked")
	}
	return t.stopped(WallProcessOne, errnoName(t.out.Errno))
}

// judgeHostProcess is for a process of the host, by its number there.
func judgeHostProcess(_ *audit, t *try) verdict {
	if t.out.Errno == int(unix.ESRCH) || t.out.Errno == int(unix.ENOENT) {
		return t.stopped(WallProcesses, errnoName(t.out.Errno)+", no such process inside")
	}
	if t.out.Errno == 0 {
		return t.is(Through, "worked")
	}
	return t.is(Through, errnoName(t.out.Errno)+", so there is such a process")
}

// judgeNone is for lists that must be empty.
func judgeNone(w Wall, how string) func(*audit, *try) verdict {
	return func(_ *audit, t *try) verdict {
		if len(t.out.Values) > 0 {
			return t.is(Through, strings.Join(t.out.Values, ", "))
		}
		return t.stopped(w, how)
	}
}

// judgeCall compares the answer to bad arguments with the one outside: the
// filter's does not depend on them.
func judgeCall(outside unix.Errno) func(*audit, *try) verdict {
	return func(_ *audit, t *try) verdict {
		inside, plain := errnoName(t.out.Second), errnoName(int(outside))
		switch {
		case t.out.Errno == 0:
			return t.is(Through, "worked")
		case outside == unix.ENOSYS:
			return t.is(Absent, "this kernel does not have it")
		case isRefusal(t.out.Second) && !isRefusal(int(outside)):
			return t.stopped(WallSeccomp, inside+", outside "+plain)
		case isRefusal(t.out.Second):
			return t.stopped(WallSeccomp+", "+WallCapabilities, inside+", outside too without privileges")
		case t.out.Errno == int(unix.EPERM) || t.out.Errno == int(unix.EACCES):
			return t.stopped(WallCapabilities, errnoName(t.out.Errno)+", but the filter let it pass")
		}
		return t.is(Unclear, errnoName(t.out.Errno))
	}
}

func judgeSocket(_ *audit, t *try) verdict {
	name := errnoName(t.out.Errno)
	filtered := t.out.Second == int(unix.EAFNOSUPPORT) || t.out.Second == int(unix.EPROTONOSUPPORT)
	switch {
	case t.out.Errno == 0:
		return t.is(Through, "made")
	case filtered:
		return t.stopped(WallSeccomp, name)
	case t.out.Errno == int(unix.EPERM) || t.out.Errno == int(unix.EACCES):
		return t.stopped(WallCapabilities, name)
	}
	return t.is(Absent, name+", this kernel does not have it")
}

// judgeFiltered is for what only the filter refuses to the owner of a thing. It
// answers before the kernel finds that a descriptor or path is bad.
func judgeFiltered(otherwise Wall) func(*audit, *try) verdict {
	return func(_ *audit, t *try) verdict {
		how := errnoName(t.out.Errno)
		switch {
		case t.out.Errno == 0:
			return t.is(Through, "worked")
		case t.out.Second == int(unix.EPERM):
			return t.stopped(WallSeccomp, how)
		}
		return t.stopped(otherwise, how+", but the filter let it pass")
	}
}

func judgeX32(outside unix.Errno) func(*audit, *try) verdict {
	return func(_ *audit, t *try) verdict {
		switch {
		case t.out.Errno == 0:
			return t.is(Through, "worked")
		case outside != 0:
			return t.is(Absent, errnoName(int(outside))+" outside too, this kernel has no x32 calls")
		}
		return t.stopped(WallSeccomp, errnoName(t.out.Errno))
	}
}

func judgeInt80(_ *audit, t *try) verdict {
	switch {
	case t.out.Errno == 0:
		return t.is(Through, "worked")
	case slices.Contains(t.out.Values, "SIGSYS"):
		return t.stopped(WallSeccomp, "the process was killed by SIGSYS")
	}
	return t.is(Absent, "this kernel has no 32-bit calls")
}

// judgeHeard asks the socket on the host whether something came.
func judgeHeard(fd, kind int) func(*audit, *try) verdict {
	return func(a *audit, t *try) verdict {
		if arrived(fd, kind) == nil {
			return t.reached(a.opensNetwork(), "arrived on the host")
		}
		how := "nothing arrived on the host"
		if t.out.Errno != 0 {
			how = errnoName(t.out.Errno) + ", nothing arrived on the host"
		}
		return t.stopped(WallNetwork, how)
	}
}

// judgeFar is for addresses that nobody here has.
func judgeFar(_ *audit, t *try) verdict {
	name := errnoName(t.out.Errno)
	switch unix.Errno(t.out.Errno) {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENETDOWN, unix.EADDRNOTAVAIL:
		return t.stopped(WallNetwork, name)
	case unix.EACCES, unix.EPERM:
		return t.stopped(WallSeccomp, name)
	}
	return t.is(Through, name+", so a packet left")
}

// judgeHostSocket is for unix sockets; fd is -1 if somebody else listens.
func judgeHostSocket(fd int) func(*audit, *try) verdict {
	return func(a *audit, t *try) verdict {
		if fd >= 0 && arrived(fd, unix.SOCK_STREAM) == nil || fd < 0 && t.out.Errno == 0 {
			return t.reached(a.grantsSocket(t.host), "connected")
		}
		switch {
		case t.out.Errno == 0:
			return t.is(Unclear, "connected to something else")
		case t.Path[0] != '@' && t.out.Errno == int(unix.ECONNREFUSED):
			return t.stopped(WallMount, "ECONNREFUSED, not the host's inside")
		case t.Path[0] != '@':
			return a.refusal(t)
		case t.out.Errno == int(unix.ECONNREFUSED):
			return t.stopped(WallNetwork, "ECONNREFUSED, no such name inside")
		case a.Spec.Broker != nil && !a.Spec.Broker.Sockets.All:
			return t.stopped(WallBroker, errnoName(t.out.Errno))
		}
		return t.stopped(WallLandlock, errnoName(t.out.Errno))
	}
}

func judgeStatus(first, last int, want string, w Wall) func(*audit, *try) verdict {
	return func(_ *audit, t *try) verdict {
		var wrong []string
		for i := first; i <= last && i < len(t.out.Values); i++ {
			if v := t.out.Values[i]; v == "" || strings.TrimLeft(v, "0") != want {
				wrong = append(wrong, statusKeys[i]+" "+v)
			}
		}
		switch {
		case len(t.out.Values) <= last:
			return t.is(Unclear, errnoName(t.out.Errno))
		case len(wrong) > 0:
			return t.is(Through, strings.Join(wrong, ", "))
		}
		return t.stopped(w, strings.Join(statusKeys[first:last+1], " ")+": "+t.out.Values[first])
	}
}

func judgeSpaces(a *audit, t *try) verdict {
	var shared, unknown []string
	for i, host := range namespaces() {
		kind := namespaceKinds[i]
		switch {
		case host == "" || i >= len(t.out.Values) || t.out.Values[i] == "":
			unknown = append(unknown, kind)
		case t.out.Values[i] == host && (kind != "net" || !a.opensNetwork()):
			shared = append(shared, kind)
		}
	}
	switch {
	case len(shared) > 0:
		return t.is(Through, "shared with the host: "+strings.Join(shared, ", "))
	case len(unknown) > 0:
		return t.is(Unclear, "not known: "+strings.Join(unknown, ", "))
	}
	return t.stopped(WallNamespaces, "none that must differ is the host's")
}

// ownVariables are set by Bailey itself, whatever the caller has.
var ownVariables = [...]string{"BAILEY", "HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"}

// judgeVariables looks for variables of the caller that were to stay out, and
// for any value formed like a secret. Those that a policy names are meant.
func judgeVariables(a *audit, t *try) verdict {
	out := slices.Concat(a.Spec.DroppedEnv, a.Spec.OmittedEnv)
	out = slices.DeleteFunc(out, func(name string) bool { return slices.Contains(ownVariables[:], name) })
	for _, bait := range baits {
		name, _, _ := strings.Cut(bait, "=")
		out = append(out, name)
	}
	var meant, leaked []string
	for _, v := range t.out.Values {
		name, kind, _ := strings.Cut(v, " ")
		_, set := a.Policy.Env.Set[name]
		switch {
		case kind == "" && !slices.Contains(out, name):
		case set || slices.Contains(a.Policy.Env.Allow, name):
			meant = append(meant, name)
		default:
			leaked = append(leaked, name)
		}
	}
	switch {
	case len(leaked) > 0:
		return t.is(Through, "inside are "+strings.Join(leaked, " "))
	case len(meant) > 0:
		return t.is(Granted, "inside are "+strings.Join(meant, " "))
	}
	return t.stopped(WallEnvironment, "none of those that stay out is inside, nor are two that were planted")
}

func judgeLinger(a *audit, t *try) verdict {
	switch {
	case t.out.Errno != 0:
		return t.is(Unclear, "the process did not start: "+errnoName(t.out.Errno))
	case a.lingering:
		return t.is(Through, "a process outlived the sandbox")
	}
	return t.stopped(WallProcesses, "nothing of the sandbox was left at its end")
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// opensNetwork says whether the policy shares the host's network.
func (a *audit) opensNetwork() bool { return a.Spec.Network != spec.NetworkNone }

// grantsWrite says whether the Spec lets the command write to a path of the
// host.
func (a *audit) grantsWrite(p string) bool {
	access, m := a.Spec.Access(p)
	return access == spec.AccessWrite && m.Kind == spec.Bind && a.brokerAllows(p, func(r *spec.PathRule) spec.Verdict { return r.Write })
}

// grantsRead says whether it lets the command read it.
func (a *audit) grantsRead(p string) bool {
	access, m := a.Spec.Access(p)
	if access == spec.AccessNone || m.Kind != spec.Bind && m.Kind != spec.Private {
		return false
	}
	return a.brokerAllows(p, func(r *spec.PathRule) spec.Verdict { return r.Read })
}

// brokerAllows asks the rules as the broker does: in each layer the first that
// says something decides.
func (a *audit) brokerAllows(p string, says func(*spec.PathRule) spec.Verdict) bool {
	if a.Spec.Broker == nil {
		return true
	}
	for _, layer := range a.Spec.Broker.Layers {
		for i := range layer {
			if says(&layer[i]) == "" || !matches(layer[i].Pattern, p) {
				continue
			}
			if says(&layer[i]) == spec.Denied {
				return false
			}
			break
		}
	}
	return true
}

// grantsSocket says whether the command may connect to a socket of the host.
func (a *audit) grantsSocket(p string) bool {
	if strings.HasPrefix(p, "@") || !a.grantsRead(p) {
		return false
	}
	b := a.Spec.Broker
	return b == nil || b.Sockets.All || slices.ContainsFunc(b.Sockets.Allowed, func(text string) bool { return matches(text, p) })
}

func matches(text, p string) bool {
	set, err := pattern.NewSet([]string{text})
	return err == nil && set.First(p) >= 0
}
