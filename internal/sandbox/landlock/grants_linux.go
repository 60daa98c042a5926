package landlock

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// rule grants rights at a path and below it.
type rule struct {
	path   string
	rights uint64
}

// maxRules bounds how many names are granted one by one. Each costs a few
// microseconds at the start, and a look at it whenever a file is opened.
const maxRules = 2000

// grant makes the rules. A rule holds for everything below its path, so one that
// would reach a point where less is granted is not made; see emit.
func (c *check) grant() {
	for i := range c.points {
		p := &c.points[i]
		if p.want&^c.granted(p.path) != 0 && !p.link {
			c.emit(p.path, p.file, p.want)
		}
	}
}

// granted are the rights that the rules so far give at a path.
func (c *check) granted(path string) (rights uint64) {
	for i := range c.rules {
		if spec.Covers(c.rules[i].path, path) {
			rights |= c.rules[i].rights
		}
	}
	return rights
}

// emit grants rights at a path and below it, except what a point below may not
// have. Then the path itself keeps the rights that do no harm there, and the names
// in it get them one by one, as they are now: a name that appears later has only
// those of the path itself.
func (c *check) emit(path string, file bool, rights uint64) {
	if len(c.rules) > maxRules {
		return // refused by tooMany
	}
	excess, culprit := c.excess(path, rights)
	if file || excess == 0 {
		c.addRule(path, file, rights)
		return
	}
	c.addRule(path, false, rights&^excess)
	if p := c.world.at(path); p != nil && p.kind == processes {
		c.refuseAt(culprit, "cannot be hidden here: whatever else is in /proc comes and goes", "remove it")
		return
	}
	if rights != toList && c.point(path) != nil {
		c.warnPartly(path, excess, culprit)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		c.warn(path + " cannot be listed, so of what is in it only what the policy names is granted")
		return
	}
	for _, e := range entries {
		name := join(path, e.Name())
		if c.point(name) != nil || e.Type()&os.ModeSymlink != 0 {
			continue // it has its own turn; what a link leads to has rules of its own
		}
		c.emit(name, !e.IsDir(), rights)
	}
	c.tooMany(culprit)
}

// warnPartly says what became of a directory in which something is not granted.
func (c *check) warnPartly(path string, excess uint64, culprit *point) {
	text := culprit.path + " is not granted, so what is made in " + path + " later is not either"
	if excess&toList != 0 {
		text += ", and " + path + " cannot be listed"
	}
	c.warn(text)
}

// addRule adds a rule, with the rights that a file can have.
func (c *check) addRule(path string, file bool, rights uint64) {
	if file {
		rights &= ofFile
	}
	if rights != 0 {
		c.rules = append(c.rules, rule{path, rights})
	}
}

// excess are those of some rights that a rule at a path would give to a point
// below it though the Spec does not, and a point that is so.
func (c *check) excess(path string, rights uint64) (excess uint64, culprit *point) {
	for i := range c.points {
		p := &c.points[i]
		if p.path == path || !spec.Covers(path, p.path) {
			continue
		}
		if more := rights & p.lacks(); more&^excess != 0 {
			excess |= more
			culprit = p
		}
	}
	return excess, culprit
}

func (c *check) tooMany(culprit *point) {
	if len(c.rules) > maxRules {
		c.refuseAt(culprit, "lies among so many other names that they cannot be granted one by one",
			"name the directories beside it that are needed, instead of the one around it")
	}
}

func (c *check) point(path string) *point {
	for i := range c.points {
		if c.points[i].path == path {
			return &c.points[i]
		}
	}
	return nil
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// open opens a rule's path without following any link, so that nobody who
// exchanges a name meanwhile gets something else granted.
func (r *rule) open() (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dir, err := unix.Open("/", flags|unix.O_DIRECTORY, 0)
	for _, name := range elements(r.path) {
		if err != nil {
			break
		}
		var next int
		next, err = unix.Openat(dir, name, flags, 0)
		_ = unix.Close(dir)
		dir = next
	}
	return dir, err
}
