package spec

import (
	"math"
	"strconv"

	"github.com/bailey-sandbox/bailey/internal/policy"
)

// Limits are what everything in a sandbox may use together. Zero is no limit.
type Limits struct {
	// Memory is in bytes, with what is swapped out, and with files in memory.
	Memory int64 `json:"memory,omitempty"`
	// CPU is in thousandths of a processor.
	CPU int64 `json:"cpuMillis,omitempty"`
	// Pids are processes and threads, without process 1, which is Bailey's own.
	// It is set for root alone: for others a limit of the user namespace holds it.
	Pids int `json:"pids,omitempty"`
	// Disk is in bytes, of files that the sandbox makes. All of them are in the
	// memory file system that private directories share, with what is written to an
	// overlay.
	Disk int64 `json:"disk,omitempty"`
}

// NeedGroup says whether there is a limit that only a control group holds.
func (l *Limits) NeedGroup() bool { return l != nil && (l.Memory > 0 || l.CPU > 0 || l.Pids > 0) }

// Each calls f for every limit that is set, with its key in a policy and its
// value as it is written there.
func (l *Limits) Each(f func(key, value string)) {
	if l == nil {
		return
	}
	if l.Memory > 0 {
		f("resources.memory", policy.Size(l.Memory).String())
	}
	if l.CPU > 0 {
		f("resources.cpu", strconv.FormatFloat(float64(l.CPU)/1000, 'f', -1, 64))
	}
	if l.Pids > 0 {
		f("resources.pids", strconv.Itoa(l.Pids))
	}
	if l.Disk > 0 {
		f(keyDisk, policy.Size(l.Disk).String())
	}
}

func (l *Limits) rows() (rows [][2]string) {
	l.Each(func(key, value string) { rows = append(rows, [2]string{key[len("resources."):], value}) })
	return rows
}

const (
	keyDisk = "resources.disk"
	// minMemory is what a program needs to be loaded at all.
	minMemory = 1 << 20
	// minCPU is the least that the kernel gives of a processor.
	minCPU = 0.01
	// minDisk keeps the directories of the sandbox itself from filling it.
	minDisk = 1 << 20
)

// limits reads resource limits. Which of them this machine can hold for this
// user is for the runtime to find out, by trying.
func (c *compiler) limits() {
	// One byte, not zero: at zero a core_pattern that is a pipe still starts its
	// program on the host, at one the kernel declines.
	c.spec.Rlimits = []Rlimit{{"core", 1}}
	r := &c.policy.Resources
	var whole Limits
	if r.OpenFiles != nil {
		least := c.leastOpenFiles()
		c.refuseIf(*r.OpenFiles < least, "resources.openFiles", strconv.Itoa(*r.OpenFiles), "the sandbox cannot be built with so few", "give it "+strconv.Itoa(least)+" or more")
		c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nofile", uint64(max(*r.OpenFiles, 0))})
	}
	if r.Pids != nil {
		whole.Pids = c.pids(*r.Pids)
	}
	if r.Timeout != nil {
		// Rounded up: zero would mean no limit.
		c.spec.TimeoutMillis = (int64(*r.Timeout) + 999_999) / 1_000_000
	}
	if r.Memory != nil {
		whole.Memory = int64(*r.Memory)
		c.refuseIf(whole.Memory < minMemory, "resources.memory", r.Memory.String(), "no program can be loaded in so little", "give it 1M or more")
	}
	if r.Disk != nil {
		whole.Disk = int64(*r.Disk)
		c.refuseIf(whole.Disk < minDisk, keyDisk, r.Disk.String(), "the sandbox's own directories need some of it", "give it 1M or more")
	}
	if r.CPU != nil {
		whole.CPU = int64(math.Round(*r.CPU * 1000))
		c.refuseIf(*r.CPU < minCPU, "resources.cpu", strconv.FormatFloat(*r.CPU, 'f', -1, 64), "the kernel does not share a processor so finely", "give it 0.01 or more")
	}
	if whole != (Limits{}) {
		c.spec.Limits = &whole
	}
}

// leastOpenFiles is how many descriptors a process needs to build the sandbox around
// itself. The programs of other runtimes have more open.
func (c *compiler) leastOpenFiles() int {
	switch text(c.policy.Runtime) {
	case "", "auto", RuntimeNative, RuntimeLandlock, RuntimeBwrap, RuntimeSeatbelt:
		return 8
	}
	return 64
}

// pids limits processes. The kernel counts those of an ordinary user for each
// user namespace (since Linux 5.14), of which every sandbox has one of its own;
// those of root it does not, so that root needs a control group.
func (c *compiler) pids(n int) (byGroup int) {
	if c.host.UID == 0 {
		return n
	}
	c.spec.Rlimits = append(c.spec.Rlimits, Rlimit{"nproc", uint64(max(n, 0)) + 1}) // and process 1
	return 0
}

// UserPids is how many processes the policy lets an ordinary user's sandbox have; false if it
// does not say.
func (s *Spec) UserPids() (n uint64, ok bool) {
	for _, l := range s.Rlimits {
		if l.Name == "nproc" {
			return l.Value - 1, true // without process 1; see pids
		}
	}
	return 0, false
}

// disk refuses a limit on files where some are written to the host: nothing
// counts those for one sandbox. An overlay is not the host: see boundOverlay.
func (c *compiler) disk() {
	l := c.spec.Limits
	if l == nil || l.Disk == 0 {
		return
	}
	named := ""
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if !c.isWrittenOnDisk(m) || named != "" && Covers(named, m.Source) {
			continue
		}
		named = m.Source
		c.refuse(keyDisk, policy.Size(l.Disk).String(),
			named+" is written on the host's disk, where nobody counts what one sandbox writes",
			"let it be written in memory (filesystem.privateWrite), in an overlay, or only read")
	}
}

func (c *compiler) isWrittenOnDisk(m *Mount) bool {
	if m.Kind != Bind || !m.Write || m.Devices || c.spec.Overlay.Covers(m.Source) {
		return false
	}
	info, ok := c.facts.lstat(m.Source)
	return !ok || info.Type == TypeRegular || info.Type == TypeDirectory
}
