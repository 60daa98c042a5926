package spec

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Image is a root directory that is not the host's: that of another system, unpacked
// somewhere. All of it can be read; the project, the home directory and what the policy
// grants by name besides are the host's, at their own paths.
type Image struct {
	// Name is what people call it.
	Name string `json:"name"`
	// ID names what it holds; empty for a directory that nobody vouches for.
	ID string `json:"id,omitempty"`
	// Dir is where it is on the host, without symbolic links.
	Dir string `json:"dir"`
	// Env are variables that it sets.
	Env []string `json:"-"`
	// User is who the command is to be inside, and UserAsked says that the caller wants
	// that, not only the image.
	User      Shown `json:"-"`
	UserAsked bool  `json:"-"`
	// WorkingDir is where the command is to start, or ""; WorkingDirAsked is as with the
	// user.
	WorkingDir      string `json:"-"`
	WorkingDirAsked bool   `json:"-"`
}

// imageUser has the command be the user that the image names. What runtimes cannot do is
// refused to who asks for it, and otherwise said.
func (c *compiler) imageUser() {
	i := c.command.Image
	if i == nil || !i.User.Set {
		return
	}
	reason := c.spec.Identity.cannotShow(c.spec.Runtime, i.User)
	user := strconv.Itoa(i.User.UID) + ":" + strconv.Itoa(i.User.GID)
	switch {
	case reason == "":
		c.spec.Identity.Shown = i.User
	case i.UserAsked:
		c.refuse("--user", user, reason, "leave it out, or use --runtime native")
	default:
		c.warn("the command is not the image's user " + user + ": " + reason)
	}
}

// cannotShow says why a runtime cannot have a caller be another user inside, or "".
func (id Identity) cannotShow(runtime string, as Shown) string {
	const ids = 65536 // of a container
	switch runtime {
	case "", RuntimeNative:
	case RuntimeBwrap:
		if id.Full {
			return "bubblewrap would lose the rights to build the sandbox"
		}
	case "runc", "crun", "gvisor":
		switch {
		case !id.Full && (as.UID != 0 || as.GID != 0):
			return "with " + runtime + " an ordinary user is root inside, without its rights"
		case id.Full && (as.UID <= 0 || as.GID <= 0 || as.UID >= ids || as.GID >= ids):
			return "with " + runtime + " the command is not root inside, and has a number below 65536"
		}
	default:
		return "the " + runtime + " runtime has no user namespace that could show it"
	}
	return ""
}

// imageDir has the command start where the image says, if there is such a directory.
func (c *compiler) imageDir() bool {
	i := c.command.Image
	if i == nil || i.WorkingDir == "" {
		return false
	}
	r, err := c.facts.resolve(path.Clean(i.WorkingDir))
	access, _ := c.spec.Access(r.path)
	if err != nil || r.missing || r.info.Type != TypeDirectory || access == AccessNone || !path.IsAbs(i.WorkingDir) {
		if i.WorkingDirAsked {
			c.refuse("--workdir", i.WorkingDir, "is no directory that the command can see", "name one of the image or of the project, with its whole path")
		}
		return false
	}
	c.spec.Dir = r.path
	return true
}

// rooted answers questions about a machine whose root directory is an image's, but for
// what is kept of the host.
type rooted struct {
	Facts
	image string
	// kept are the host's: paths as they are named, and as they are without links.
	kept []string
}

// newRooted finds out what is kept of the host.
func newRooted(f Facts, image *Image, p *policy.Policy) *rooted {
	h := f.Host()
	kept := []string{"/proc", "/dev", "/sys", h.Dir, h.Home, h.Root, h.Self}
	kept = append(append(kept, h.OwnDirs...), h.PolicyFiles...)
	kept = append(kept, h.Companions...)
	if a := h.Authority; a != nil {
		kept = append(kept, a.Dir, a.Bundle, a.Store)
	}
	for _, fs := range append([]policy.Filesystem{p.Filesystem}, p.Bounds...) {
		kept = append(kept, namedGrants(fs)...)
	}
	r := &rooted{Facts: f, image: image.Dir}
	links := newLookups(f)
	for _, k := range kept {
		if !strings.HasPrefix(k, "/") {
			continue
		}
		if k = clean(k); k == "/" || strings.IndexByte(k, 0) >= 0 {
			continue
		}
		r.kept = append(r.kept, k)
		if real, err := links.resolve(k); err == nil && real.path != "/" {
			r.kept = append(r.kept, real.path)
		}
	}
	return r
}

// systemDirs are those that an image has for itself.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap", "/run", "/home/linuxbrew"}

// namedGrants are what a policy grants of the host by an absolute path. What every policy
// lets be read of a system is the image's.
func namedGrants(fs policy.Filesystem) (list []string) {
	list = append(list, fs.AllowWrite...)
	list = append(list, fs.PrivateWrite...)
	for _, entry := range fs.AllowRead {
		if !slices.ContainsFunc(systemDirs, func(dir string) bool { return Covers(dir, clean(entry)) }) {
			list = append(list, entry)
		}
	}
	return slices.DeleteFunc(list, isPattern)
}

// isKept says whether a path is the host's.
func (r *rooted) isKept(p string) bool {
	return slices.ContainsFunc(r.kept, func(k string) bool { return Covers(k, p) })
}

// shown are those of the host's paths that are the host's inside, too.
func (c *compiler) shown(list []string) (paths []string) {
	if c.rooted == nil {
		for _, p := range list {
			paths = append(paths, clean(p))
		}
		return paths
	}
	host := newLookups(c.rooted.Facts)
	for _, p := range list {
		p = clean(p)
		if real, err := host.resolve(p); err == nil && !c.rooted.isKept(p) {
			p = real.path
		}
		if c.rooted.isKept(p) {
			paths = append(paths, p)
		}
	}
	return paths
}

// leadsTo says whether something below a path is the host's.
func (r *rooted) leadsTo(p string) bool {
	return slices.ContainsFunc(r.kept, func(k string) bool { return below(p, k) })
}

// at is where the kernel finds a path.
func (r *rooted) at(p string) string {
	switch {
	case r.isKept(p):
		return p
	case p == "/":
		return r.image
	}
	return r.image + p
}

func (r *rooted) Lstat(p string) (FileInfo, error) {
	if r.leadsTo(p) {
		return r.Facts.Lstat(p) // there are directories of that name in the root that is made
	}
	return r.Facts.Lstat(r.at(p))
}

func (r *rooted) Readlink(p string) (string, error) {
	if r.leadsTo(p) {
		return r.Facts.Readlink(p)
	}
	return r.Facts.Readlink(r.at(p))
}

func (r *rooted) ReadFile(p string) ([]byte, error) { return r.Facts.ReadFile(r.at(p)) }

func (r *rooted) Readable(p string) bool { return r.Facts.Readable(r.at(p)) }

// ReadDir lists the image, and what leads to the host's files.
func (r *rooted) ReadDir(p string, limit int) ([]string, error) {
	names, err := r.Facts.ReadDir(r.at(p), limit)
	if !r.leadsTo(p) {
		return names, err
	}
	for _, k := range r.kept {
		if below(p, k) {
			name, _, _ := strings.Cut(strings.TrimPrefix(k, join(p, "")), "/")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// grantImage lets everything in the image be read that is not the sandbox's own. A
// directory that leads to something of the host's is taken apart.
func (c *compiler) grantImage() {
	if c.rooted != nil {
		c.grantBelow("/")
	}
}

// ownPlaces are what every sandbox has its own of.
var ownPlaces = []string{"/proc", "/dev", "/sys", "/tmp", "/run"}

func (c *compiler) grantBelow(dir string) {
	names, err := c.facts.ReadDir(dir, 1<<16)
	if err != nil {
		c.refuse("--image", c.command.Image.Name, err.Error(), "")
		return
	}
	for _, name := range names {
		p := join(dir, name)
		switch {
		case c.rooted.isKept(p) || slices.Contains(ownPlaces, p):
		case c.rooted.leadsTo(p):
			c.grantBelow(p)
		default:
			c.grantEntry(p)
		}
	}
}

// grantEntry lets one entry of the image be read. A link is made again.
func (c *compiler) grantEntry(p string) {
	info, ok := c.facts.lstat(p)
	if !ok {
		return
	}
	if info.Type == TypeLink {
		if text, err := c.facts.readlink(p); err == nil {
			c.links = append(c.links, link{p, text})
		}
		return
	}
	for _, l := range c.layers {
		l.rules = append(l.rules, rule{resolved: resolved{path: p, info: info}, kind: allowRead, why: "image"})
	}
}

// isImages says whether a rule is about what the image has for itself, where it grants
// nothing more.
func (c *compiler) isImages(kind ruleKind, p string) bool {
	return c.rooted != nil && kind == allowRead && !c.rooted.isKept(p)
}

// placeImage has what the image shows taken from where it is. With a network the host's
// way of finding names holds.
func (c *compiler) placeImage() {
	if c.rooted == nil {
		return
	}
	c.spec.Image = c.command.Image
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if (m.Kind == Bind || m.Kind == Private) && !c.rooted.isKept(m.Source) {
			m.Source = c.rooted.at(m.Source)
		}
	}
	if c.spec.Network == NetworkNone {
		return
	}
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		inside, ok := c.facts.lstat(file)
		host, err := newLookups(c.rooted.Facts).resolve(file)
		if !ok || inside.Type != TypeRegular || err != nil || host.info.Type != TypeRegular {
			continue // nothing to stand on, or nothing to show
		}
		c.spec.Mounts = append(c.spec.Mounts, Mount{Kind: Bind, Source: host.path, Target: file, File: true, Why: "the host's way of finding names"})
	}
	c.spec.Mounts = sortMounts(c.spec.Mounts)
}

// exists says whether there is a file of this name inside. A link of an image leads
// within the image.
func (c *compiler) exists(file string) bool {
	if c.rooted == nil {
		_, err := c.facts.Lstat(file)
		return err == nil
	}
	r, err := c.facts.resolve(path.Clean(file))
	return err == nil && !r.missing
}

// imageVariables puts the image's variables over the caller's that have come in, but for
// those that the policy names.
func (c *compiler) imageVariables(env map[string]string) {
	if c.rooted == nil {
		return
	}
	for _, v := range c.command.Image.Env {
		name, value, ok := strings.Cut(v, "=")
		if _, has := env[name]; has && slices.Contains(c.policy.Env.Allow, name) || !ok || strings.IndexByte(v, 0) >= 0 {
			continue
		}
		env[name] = value
	}
}

// isUniversal says whether a variable of the caller means the same in another system.
func isUniversal(name string) bool {
	switch name {
	case "CI", "CLICOLOR", "CLICOLOR_FORCE", "COLORFGBG", "COLORTERM", "COLUMNS", "FORCE_COLOR", "LINES", "LOGNAME", "NO_COLOR", "TERM", "TZ", "USER":
		return true
	}
	return strings.HasPrefix(name, "GIT_AUTHOR_") || strings.HasPrefix(name, "GIT_COMMITTER_")
}

// path is PATH as the image sets it, or "".
func (i *Image) path() string {
	for _, v := range slices.Backward(i.Env) {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			return value
		}
	}
	return ""
}
