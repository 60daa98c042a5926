package landlock

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/broker"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Why Landlock cannot keep the command from something.
const (
	becauseWritten = "the broker of the sandbox around this one writes here for everybody in it"
	becauseUnclear = "the broker of the sandbox around this one may write here for everybody in it"
)

// restrictions refuses what only Landlock would keep from the command, where the
// broker of a sandbox around this one would perform the call, for which Landlock
// does not judge the command. What can be held by having the broker do less, it does
// less for this process from here on.
func (c *check) restrictions() error {
	read, write := c.restricted()
	if len(read)+len(write) == 0 {
		return nil
	}
	if err := giveUp(broker.LentNoTerminal); err != nil {
		return err
	}
	program := ownProgram()
	readable, opened := canRead(program), false
	verdicts := make([]string, len(write))
	var lost []*point
	brokered, err := powerless(c.abi, func() {
		opened = canRead(program)
		for i, p := range write {
			verdicts[i] = verdictOf(p.tryWrite())
		}
		lost = slices.DeleteFunc(c.writable(), func(p *point) bool { return p.tryWrite() != nil })
	})
	if err != nil || !brokered {
		return err
	}
	c.brokered = true
	if (opened || !readable) && c.refuseRead(append(read, write...)) {
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
	if slices.Contains(verdicts, becauseWritten) && !slices.ContainsFunc(lost, c.isOfTheHost) {
		if err := c.withoutFiles(write, verdicts); err != nil {
			return err
		}
		for _, p := range lost {
			c.warn(p.path + ": nothing can be written there, since the broker of the sandbox around this one would, and it does not for this command")
		}
	}
	c.refuseTopmost(write, func(i int) string { return verdicts[i] })
	return nil
}

func giveUp(to broker.Lent) error {
	return failed(native.WallLimits, "have the broker do less", broker.GiveUp(to))
}

// withoutFiles has the broker write no files for this process, and looks again at where
// it has.
func (c *check) withoutFiles(write []*point, verdicts []string) error {
	if err := giveUp(broker.LentNoFile); err != nil {
		return err
	}
	_, err := powerless(c.abi, func() {
		for i, p := range write {
			if verdicts[i] == becauseWritten {
				verdicts[i] = verdictOf(p.tryWrite())
			}
		}
	})
	return err
}

// writable are the points that the command may write. /dev is not the broker's.
func (c *check) writable() (list []*point) {
	for i := range c.points {
		if p := &c.points[i]; p.want&toWrite != 0 && !spec.Covers("/dev", p.path) {
			list = append(list, p)
		}
	}
	return list
}

// isOfTheHost says whether the Spec grants what is at a point to be written, and not
// only in a private directory.
func (c *check) isOfTheHost(p *point) bool {
	_, m := c.spec.Access(p.path)
	return m == nil || m.Kind == spec.Bind
}

// refuseRead refuses a Spec that keeps a point from being read, where the broker opens
// every file for everybody, unless it does not open that one.
func (c *check) refuseRead(points []*point) bool {
	held := lendsNoTerminal()
	for _, p := range points {
		if p.lacks()&toRead == 0 || held && isTerminal(p.path) {
			continue
		}
		c.refuse("filesystem", "", "the sandbox around this one has patterns in its denyRead, so its broker opens every file for everybody in it, "+
			"and nothing can be kept from being read by the command; "+p.path+" would have to be", "grant it here too, or take the patterns out there")
		return true
	}
	return false
}

// isTerminal says whether nothing but terminals is at a path of /dev.
func isTerminal(path string) bool {
	return path == "/dev/tty" || path == "/dev/ptmx" || spec.Covers("/dev/pts", path)
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
