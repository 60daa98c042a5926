package spec

import (
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// locateCaller finds the home, working and project directories. It reports
// false if there is nothing to go on from.
func (c *compiler) locateCaller() bool {
	if !c.command.Later && (len(c.command.Argv) == 0 || c.command.Argv[0] == "") {
		c.refuse("command", "", "there is no program to run", "name one after --")
	}
	for _, a := range c.command.Argv {
		c.refuseIf(strings.IndexByte(a, 0) >= 0, "command", a, "an argument holds a NUL byte", "")
	}
	c.facts.list("/")
	dir, ok := c.realDir("the working directory", c.host.Dir)
	if !ok {
		return false
	}
	c.dir = dir.path
	if c.host.Home != "" {
		if c.home, ok = c.realDir("the home directory", c.host.Home); !ok {
			return false
		}
		c.facts.list(c.home.path)
	}
	c.project = c.findProject()
	return true
}

func (c *compiler) realDir(what, p string) (resolved, bool) {
	if !strings.HasPrefix(p, "/") || strings.IndexByte(p, 0) >= 0 {
		c.refuse(what, p, "is not an absolute path", "")
		return resolved{}, false
	}
	r, err := c.facts.resolve(clean(p))
	if err != nil {
		c.refuse(what, p, err.Error(), "")
		return resolved{}, false
	}
	return r, true
}

// findProject returns the nearest directory from the working directory upwards
// that holds a .git and can be granted; otherwise the working directory.
func (c *compiler) findProject() string {
	if root := c.host.Root; root != "" {
		if r, err := c.facts.resolve(clean(root)); err == nil && Covers(r.path, c.dir) && !c.wide(r.path) {
			return r.path
		}
	}
	for d := c.dir; d != "/"; d = path.Dir(d) {
		info, ok := c.facts.lstat(join(d, ".git"))
		// Somebody else's .git above the working directory must not widen what
		// is granted.
		mine := d == c.dir || c.host.UID == 0 || info.UID == c.host.UID || info.UID == 0
		if ok && mine && !c.wide(d) {
			return d
		}
	}
	return c.dir
}

// wide says whether a directory holds so much besides a project that it is
// granted only by its absolute path: the home directory, what holds it, and the
// system's own directories.
func (c *compiler) wide(d string) bool {
	if d == "/" || c.home.path != "" && Covers(d, c.home.path) {
		return true
	}
	if path.Dir(d) == "/home" {
		return true // somebody's home, whatever HOME says
	}
	if IsOwn(d) {
		return true
	}
	for _, s := range []string{"/etc", "/sys", "/boot", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if Covers(s, d) {
			return true
		}
	}
	switch d {
	case "/home", "/root", "/media", "/mnt", "/opt", "/run", "/srv", "/tmp", "/usr", "/var", "/nix", "/snap",
		"/usr/local", "/usr/src", "/var/tmp", "/var/lib", "/var/log", "/var/cache", "/var/spool", "/var/run", "/run/user":
		return true
	}
	// Source trees are kept in these two, and container images work in them.
	if below("/usr/src", d) || below("/usr/local/src", d) {
		return false
	}
	return Covers("/usr", d) || path.Dir(d) == "/run/user"
}

// grantSearchPath makes the directories of PATH readable: a program the caller
// can name should be found. Directories that others could fill, or that hold
// the home directory, are not worth that, and a denial stays one.
func (c *compiler) grantSearchPath() {
	if c.rooted != nil {
		return // all of the image can be read
	}
	l := c.layers[0]
	for _, dir := range c.search {
		if Covers("/usr", dir) && c.granted("/usr") != AccessNone {
			continue // visible with all its links
		}
		r, err := c.facts.resolve(clean(dir))
		if err != nil || r.missing || r.info.Type != TypeDirectory {
			continue
		}
		if _, ok := c.replaceable(r.links); ok {
			continue
		}
		if c.granted(r.path) == AccessNone && c.worthSearching(r) {
			l.rules = append(l.rules, rule{resolved: r, kind: allowRead, why: "PATH"})
		}
		if c.granted(r.path) != AccessNone {
			c.links = append(c.links, r.links...)
		}
	}
}

func (c *compiler) worthSearching(r resolved) bool {
	if r.info.Mode&0o002 != 0 || r.path == "/" || c.home.path != "" && Covers(r.path, c.home.path) {
		return false
	}
	if IsOwn(r.path) {
		return false
	}
	for _, deny := range c.layers[0].rules {
		if deny.kind == denyRead && Covers(deny.path, r.path) {
			return false
		}
	}
	return true
}

// grantResolver shows the file behind /etc/resolv.conf, which many systems keep
// in /run, when the host's network is used.
func (c *compiler) grantResolver() {
	const conf = "/etc/resolv.conf"
	if c.spec.Network == NetworkNone || c.granted("/etc") == AccessNone {
		return
	}
	r, err := c.facts.resolve(conf)
	if err != nil || r.missing || r.path == conf || r.info.Type != TypeRegular || !Covers("/run", r.path) {
		return
	}
	for _, l := range c.layers {
		l.rules = append(l.rules, rule{resolved: r, kind: allowRead, why: "resolver"})
	}
}

// workingDir sets the directory the command starts in. If it was not granted an
// empty one stands in its place, so that the command still starts where it
// believes to be.
func (c *compiler) workingDir() {
	if c.imageDir() {
		return
	}
	c.spec.Dir = c.dir
	_, m := c.spec.Access(c.dir)
	if m != nil && (m.Kind == Bind || m.Kind == Private || m.Kind == Proc) || c.dir == "/" {
		return
	}
	for i := range c.spec.Mounts {
		t := &c.spec.Mounts[i]
		if Covers(c.dir, t.Target) && t.Kind != Hide {
			return // a mount, or on the way to one
		}
	}
	if m != nil && (m.Kind == Hide || m.Kind == Dev) {
		c.spec.Dir = "/"
		c.warn("the working directory " + plain.Text(c.dir) + " is not granted; the command starts in /")
		return
	}
	c.spec.Mounts = append(c.spec.Mounts, Mount{Kind: Dir, Target: c.dir, Why: "working directory"})
	c.spec.Mounts = sortMounts(c.spec.Mounts)
	c.warn("the working directory " + plain.Text(c.dir) + " is not granted; it is empty inside")
}
