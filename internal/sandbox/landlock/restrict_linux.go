package landlock

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Why Landlock cannot keep the command from something.
const (
	becauseWritten = "the broker of the sandbox around this one writes here for everybody in it"
	becauseUnclear = "the broker of the sandbox around this one may write here for everybody in it"
)

// restrictions refuses what only Landlock would keep from the command, where the
// broker of a sandbox around this one would perform the call, for which Landlock
// does not judge the command.
func (c *check) restrictions() error {
	read, write := c.restricted()
	if len(read)+len(write) == 0 {
		return nil
	}
	program := ownProgram()
	readable, opened := canRead(program), false
	verdicts := make([]string, len(write))
	brokered, err := powerless(c.abi, func() {
		opened = canRead(program)
		for i, p := range write {
			verdicts[i] = verdictOf(p.tryWrite())
		}
	})
	if err != nil || !brokered {
		return err
	}
	c.brokered = true
	if opened || !readable {
		c.refuse("filesystem", "", "the sandbox around this one has patterns in its denyRead, so its broker opens every file for everybody in it, "+
			"and nothing can be kept from the command; at least "+append(read, write...)[0].path+" would have to be", "take the patterns out there")
		return nil
	}
	for i, p := range write {
		// If nobody can write there, it need not have been Landlock that kept the
		// thread from it: the owner of a file could change its mode, or a rule be
		// about less than all that lies below.
		if verdicts[i] == "" && p.tryWrite() != nil {
			verdicts[i] = becauseUnclear
		}
	}
	c.refuseTopmost(write, func(i int) string { return verdicts[i] })
	return nil
}

// restricted returns the points that the command could read, and those that it
// could write, if it were not for Landlock. The broker has nothing to do with what
// is in /dev, which every sandbox has of its own, and no grant reaches into it.
// What it protects by name it writes for nobody.
func (c *check) restricted() (read, write []*point) {
	for i := range c.points {
		p := &c.points[i]
		switch lacks := p.lacks(); {
		case lacks&toWrite != 0 && lacks&toRead == 0 && isRefused(p.path):
		case lacks&toWrite != 0 && !spec.Covers("/dev", p.path):
			write = append(write, p)
		case lacks&(toRead|toWrite) != 0:
			read = append(read, p)
		}
	}
	return read, write
}

// verdictOf is what the attempt of a thread without any rights shows: empty if
// Landlock stopped it.
func verdictOf(err error) string {
	switch {
	case err == nil:
		return becauseWritten
	case errors.Is(err, unix.EACCES):
		return ""
	}
	return becauseUnclear
}

// refuseTopmost refuses points for a reason, unless that is empty, and leaves out
// those below another one.
func (c *check) refuseTopmost(points []*point, reason func(int) string) {
	var last string
	for i, p := range points {
		why := reason(i)
		if why == "" || last != "" && spec.Covers(last, p.path) {
			continue
		}
		last = p.path
		c.refuseAt(p, why+", so nothing here can be kept from the command", p.remedy())
	}
}

// remedy says what would make a policy possible.
func (p *point) remedy() string {
	switch {
	case strings.HasPrefix(p.why, "filesystem.deny"):
		return "remove it here, and give it to the sandbox around this one"
	case strings.HasPrefix(p.why, "protected "):
		return "start the sandbox around this one so that it protects it too"
	}
	return "grant it here too (--allow-write " + p.path + "), or start the sandbox around this one without it"
}
