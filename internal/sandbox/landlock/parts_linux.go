package landlock

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// mounts compares what the Spec would mount with what is mounted.
func (c *check) mounts() {
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		p := c.world.at(m.Target)
		switch m.Kind {
		case spec.Bind:
			c.bind(m, p)
		case spec.Tmpfs:
			if m.Mode != 0 {
				c.private(m, p != nil && isScratch(p) && c.world.isMount(m.Target), "--allow-write "+m.Target+" grants it as it is")
			}
		case spec.Private:
			held := p != nil && (isScratch(p) || p.kind == layered && p.writable && p.target == m.Target)
			c.private(m, held, `"!`+strings.TrimPrefix(m.Why, "filesystem.privateWrite ")+`" in privateWrite takes it back`)
		case spec.Proc:
			c.processes(p)
		case spec.Dev:
			if shm := c.world.at("/dev/shm"); shm == nil || !isScratch(shm) {
				c.refuse("/dev/shm", "", "is not private here", "start bailey where it can make namespaces")
			}
		case spec.Dir, spec.Symlink, spec.Hide: // grant nothing
		default:
			c.refuseWhy(m.Why, "cannot be made here: "+string(m.Kind), "")
		}
	}
}

// bind warns where less is to be had than the Spec grants, and refuses to show one
// path in the place of another.
func (c *check) bind(m *spec.Mount, p *place) {
	if m.Source != m.Target {
		c.refuseWhy(m.Why, "cannot be shown at "+m.Target+" without a mount namespace", "")
		return
	}
	_, around := c.spec.Access(path.Dir(m.Target))
	if m.Write && p != nil && !p.writable && (around == nil || around.Kind != spec.Bind || !around.Write) {
		c.warn(m.Why + ": the sandbox around this one lets nobody write there")
	}
}

// private refuses a private directory that the place does not have.
func (c *check) private(m *spec.Mount, held bool, fix string) {
	if !held {
		c.refuseWhy(m.Why, "what is at "+m.Target+" is not private here, and nothing can be mounted", fix)
		return
	}
	c.shared = append(c.shared, m.Target)
}

// processes refuses a /proc that is not of this process namespace, or that could
// be written: as root its files let their owner configure the machine.
func (c *check) processes(p *place) {
	self, _ := os.Readlink("/proc/self")
	if p == nil || p.kind != processes || p.writable || self != strconv.Itoa(os.Getpid()) {
		c.refuse("/proc", "", "is not one of the sandbox around this one, and no other can be mounted", "start bailey where it can make namespaces")
	}
}

// network finds out whether the network here is closed. If it is not and the Spec
// wants it to be, the filter leaves the command no sockets for it. For what lies
// between closed and open there would have to be a gate.
func (c *check) network() {
	c.closed = hasOnlyLoopback() && !hasWayOut()
	switch n := c.spec.Network; {
	case n == spec.NetworkNone && c.closed:
		c.shared = append(c.shared, "loopback")
	case n == spec.NetworkHost && c.closed:
		c.warn("the network of the sandbox around this one is closed, so there is nothing but loopback")
	case n != spec.NetworkNone && n != spec.NetworkHost:
		c.refuse("network.allowedDomains", "", "needs a network gate of its own, which a sandbox inside another cannot have",
			`remove it, or use "*" for what the sandbox around this one reaches`)
	}
	if len(c.spec.Expose) > 0 {
		c.refuse("network.exposePorts", "", "needs a network of its own, which a sandbox inside another cannot have", "give -p to the sandbox around this one")
	}
}

// hasOnlyLoopback says whether no other interface is up. Nobody without
// privileges can change that.
func hasOnlyLoopback() bool {
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		name, _, ok := bytes.Cut(line, []byte(":"))
		if name = bytes.TrimSpace(name); ok && string(name) != "lo" && isUp(string(name)) {
			return false
		}
	}
	return true
}

// hasWayOut says whether somebody outside serves this network on loopback, as the
// network gate does. Such a socket has a port that nobody inside could have bound.
func hasWayOut() bool {
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		data, err := os.ReadFile("/proc/self/net/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) || hasPrivilegedPort(string(data)) {
			return true
		}
	}
	return false
}

// hasPrivilegedPort looks at the local addresses in a table of sockets:
//
//	sl  local_address rem_address   st tx_queue ...
//	 0: 0100007F:03AC 00000000:0000 0A 00000000:00000000 ...
func hasPrivilegedPort(table string) bool {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == "sl" {
			continue
		}
		_, text, _ := strings.Cut(f[1], ":")
		if port, err := strconv.ParseUint(text, 16, 16); err != nil || port > 0 && port < 1024 {
			return true
		}
	}
	return false
}

func isUp(name string) bool {
	// Any socket will do to ask, and this kind no filter of ours forbids.
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq(name)
	if err != nil {
		return true
	}
	return unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req) != nil || req.Uint16()&unix.IFF_UP != 0
}

// broker refuses rules that only a broker of our own could hold. Those about
// names are looked at one by one, in names.
func (c *check) broker() {
	b := c.spec.Broker
	if b == nil {
		return
	}
	const reason = "needs a broker, and the kernel allows a process only one, which the sandbox around this one may have"
	if b.Commands != nil {
		c.refuse("command", "", reason, `set "runtimeExecPolicy" to "off", so that only the command that is typed is judged, or give the rules to the sandbox around this one`)
	}
	if b.Observe {
		c.refuse("--monitor", "", reason, "give it to the sandbox around this one")
	}
	if len(b.Sockets.Allowed) > 0 && !b.Sockets.All {
		c.refuse("network.allowUnixSockets", strings.Join(b.Sockets.Allowed, ", "), reason, `remove it, or set "allowAllUnixSockets"`)
	}
	for _, layer := range b.Layers {
		for i := range layer {
			r := &layer[i]
			if r.Read != spec.Denied && r.Write != spec.Denied {
				continue
			}
			if _, ok := literals(r); !ok {
				c.refuseWhy(r.Why, reason, "give it to the sandbox around this one")
			}
		}
	}
}

// literals are the paths that a rule is about, if they can be listed.
func literals(r *spec.PathRule) ([]string, bool) {
	for _, list := range spec.NameLists() {
		quoted, ok := strings.CutSuffix(r.Pattern, "/"+list)
		if !ok {
			continue
		}
		dir, ok := pattern.Literal(quoted)
		var paths []string
		for name := range strings.SplitSeq(strings.Trim(list, "{}"), ",") {
			paths = append(paths, join(dir, name))
		}
		return paths, ok
	}
	p, ok := pattern.Literal(r.Pattern)
	return []string{p}, ok
}

// limits refuses a time limit: somebody would have to stay and wait; and those on
// the sandbox as a whole, which has neither a group nor files of its own.
func (c *check) limits() {
	c.spec.Limits.Each(func(key, value string) {
		c.refuse(key, value, "only a sandbox with walls of its own has one", "give it to the sandbox around this one")
	})
	if ms := c.spec.TimeoutMillis; ms > 0 {
		c.refuse("resources.timeout", (time.Duration(ms) * time.Millisecond).String(),
			"nobody stays behind who could end the command", "give it to the sandbox around this one, or use timeout(1)")
	}
}

// pinned refuses what is protected or hidden by a mount while a directory above it
// could be renamed: another would take its place, without the mount.
func (c *check) pinned() {
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if m.Kind != spec.Hide && (m.Kind != spec.Bind || m.Write) || !c.world.isMount(m.Target) {
			continue // what Landlock holds needs no mount
		}
		for dir := path.Dir(m.Target); dir != "/"; dir = path.Dir(dir) {
			_, around := c.spec.Access(dir)
			if around == nil || around.Kind != spec.Bind || !around.Write {
				break
			}
			if p := c.world.at(dir); p == nil || p.target != dir && p.writable {
				c.refuseWhy(m.Why, "the directory "+dir+" above it could be renamed", "give it to the sandbox around this one")
				break
			}
		}
	}
}

// names refuses names that must not come into being, unless the broker of the
// sandbox around this one keeps them from it.
func (c *check) names() {
	if c.spec.Broker == nil {
		return
	}
	var open []string // that are protected, and nobody holds
	for _, layer := range c.spec.Broker.Layers {
		for i := range layer {
			r := &layer[i]
			if r.Read != spec.Denied && r.Write != spec.Denied {
				continue
			}
			paths, _ := literals(r)
			paths = slices.DeleteFunc(paths, func(p string) bool { return isExcepted(layer[:i], p) || c.isHeld(p) })
			switch {
			case len(paths) == 0:
			case strings.HasPrefix(r.Why, "filesystem."):
				c.refuseWhy(r.Why, "nothing keeps it from being made here", "give it to the sandbox around this one")
			default:
				open = append(open, paths...)
			}
		}
	}
	c.refuseNames(open)
}

// isExcepted says whether an earlier rule allows to write a path. Patterns are
// not looked at: then the path counts as denied.
func isExcepted(earlier []spec.PathRule, p string) bool {
	return slices.ContainsFunc(earlier, func(r spec.PathRule) bool {
		at, ok := pattern.Literal(r.Pattern)
		return ok && r.Write == spec.Allowed && spec.Covers(at, p)
	})
}

// isHeld says whether a name cannot be made or written: because the Spec grants no
// writing there, which is Landlock's to hold or was a mount's already, because
// nobody here can write there, or because the broker around this sandbox says so.
func (c *check) isHeld(p string) bool {
	if a, _ := c.spec.Access(p); a < spec.AccessPrivate {
		return true
	}
	if at := c.world.at(existing(p)); at != nil && !at.writable {
		return true
	}
	return isRefused(p)
}

// existing is a path, or the nearest one above it that exists.
func existing(p string) string {
	var st unix.Stat_t
	for p != "/" && unix.Lstat(p, &st) != nil {
		p = path.Dir(p)
	}
	return p
}

// refuseNames names what nobody protects, the directories once.
func (c *check) refuseNames(open []string) {
	slices.Sort(open)
	open = slices.Compact(open)
	for len(open) > 0 {
		dir := path.Dir(open[0])
		n := 0
		for n < len(open) && spec.Covers(dir, open[n]) {
			n++
		}
		text := path.Base(open[0])
		if n > 1 {
			text += " and " + strconv.Itoa(n-1) + " other protected names"
		}
		c.refuse("filesystem.protectMissing", "", "nothing keeps "+text+" from being made in "+dir,
			"run it where the sandbox around this one was started, or set it to false")
		open = open[n:]
	}
}

// elements are the names in an absolute, clean path.
func elements(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}
