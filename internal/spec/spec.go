// Package spec holds the compiled form of a policy: everything a runtime has
// to do, in order, with absolute paths, and nothing left to decide.
package spec

import "github.com/bailey-sandbox/bailey/internal/gate/config"

// Spec is one sandbox and the command it starts. It is pure data: printable,
// comparable with reflect.DeepEqual, and stable for the same inputs.
type Spec struct {
	Version int `json:"version"`

	// Runtime names the one that must carry it; empty if any may.
	Runtime string `json:"runtime,omitempty"`

	// Argv is the command. Exec lists the files to try as its program, in order,
	// as paths inside the sandbox.
	Argv []string `json:"argv"`
	Exec []string `json:"exec"`
	// Dir is the working directory inside.
	Dir string `json:"dir"`
	// Env is the whole environment, sorted by name.
	Env []string `json:"env"`

	// Identity maps host ids to themselves; see Identity.
	Identity Identity `json:"identity"`
	// Network says what the network namespace is.
	Network Network `json:"network"`
	// Gate is the way out of NetworkGate; nil otherwise.
	Gate *Gate `json:"gate,omitempty"`
	// Expose are ports of the sandbox that the host can reach. The network is the
	// sandbox's own then.
	Expose []Exposure `json:"expose,omitempty"`
	// Inlet says that other ports can be exposed while the sandbox stands.
	Inlet bool `json:"inlet,omitempty"`
	// Mounts build the root directory, in order; a parent stands before its
	// children. Every path is absolute, clean, and free of symbolic links.
	Mounts []Mount `json:"mounts"`
	// Overlay lies over the project; nil if writes reach it. See Overlay.
	Overlay *Overlay `json:"overlay,omitempty"`
	// Rules are path permissions of the project that mounts cannot hold; nil if
	// there are none. See Rules.
	Rules *Rules `json:"rules,omitempty"`
	// Image is the root directory that what can be read comes from; nil if that is
	// the host's. It is for people: the mounts say it all.
	Image *Image `json:"image,omitempty"`
	// Landlock is the second wall around files, and the one around signals and
	// abstract sockets.
	Landlock Landlock `json:"landlock"`
	// Seccomp is the system call filter.
	Seccomp Seccomp `json:"seccomp"`
	// Broker is what is decided while the command runs; nil if nothing is.
	Broker *Broker `json:"broker,omitempty"`
	// Rlimits are set before the command starts.
	Rlimits []Rlimit `json:"rlimits,omitempty"`
	// Limits are those on the sandbox as a whole; nil if there are none.
	Limits *Limits `json:"limits,omitempty"`
	// TimeoutMillis ends the sandbox; zero means never.
	TimeoutMillis int64 `json:"timeoutMillis,omitempty"`

	// Warnings are said on stderr before the command runs, unless quiet.
	Warnings []string `json:"warnings,omitempty"`
	// DroppedEnv names variables that were kept out because they look like
	// secrets. Only names, never values.
	DroppedEnv []string `json:"droppedEnv,omitempty"`
	// Denials are what rules deny, mounted or not. Whoever gives advice needs
	// them; whoever carries out a Spec does not, so they are not written down.
	Denials []Denial `json:"-"`
	// OmittedEnv names the other variables of the caller that stay out, because
	// no list lets them in.
	OmittedEnv []string `json:"omittedEnv,omitempty"`
}

// Identity is the caller's user and group, which stay the same inside.
// If Full is set every id is mapped to itself, which only root can do, so that
// files of other owners keep them; otherwise only the caller's own id exists.
type Identity struct {
	UID  int  `json:"uid"`
	GID  int  `json:"gid"`
	Full bool `json:"full"`
	// Shown is who the caller is inside, if that is another number. Outside nothing
	// changes by it.
	Shown Shown `json:"shown,omitzero"`
}

// Shown is a user and a group by their numbers; the zero value is nobody in particular.
type Shown struct {
	Set bool `json:"set"`
	UID int  `json:"uid"`
	GID int  `json:"gid"`
}

// Inside is who the caller is inside.
func (id Identity) Inside() (uid, gid int) {
	if id.Shown.Set {
		return id.Shown.UID, id.Shown.GID
	}
	return id.UID, id.GID
}

// Network is the kind of network.
type Network string

const (
	// NetworkNone is a network namespace with nothing but its own loopback.
	NetworkNone Network = "none"
	// NetworkHost shares the host's network: an explicit "*" in the policy.
	NetworkHost Network = "host"
	// NetworkGate is a network namespace whose only way out is the network gate;
	// see Gate.
	NetworkGate Network = "gate"
)

// IsOwn says whether the sandbox has a network namespace of its own.
func (n Network) IsOwn() bool { return n != NetworkHost }

// Gate is the way out of a network of the sandbox's own: sockets inside that the
// network gate, which runs outside, listens on.
type Gate struct {
	// Config is what the gate is told.
	Config config.Config `json:"config"`
	// Transparent leads connections of programs that know nothing of proxies to
	// the gate as well, and their questions for names.
	Transparent bool `json:"transparent"`
	// Must says that nothing runs where the kernel cannot do that.
	Must bool `json:"must,omitempty"`
	// Socket is the path of a unix socket inside that is the only way to the gate;
	// empty if it is at ports of loopback.
	Socket string `json:"socket,omitempty"`
	// Silent says that nobody is told of datagrams that lead nowhere, and which
	// process made a connection, where the kernel cannot do that.
	Silent bool `json:"silent,omitempty"`
	// Unknown are groups of the policy that stand for nothing on this machine,
	// and why.
	Unknown []string `json:"unknown,omitempty"`
	// Local are the ports at which the host's loopback stands in the place of the
	// sandbox's own, in IPv4, and LocalIPv6 those in IPv6.
	Local     []config.Ports `json:"local,omitempty"`
	LocalIPv6 []config.Ports `json:"localIPv6,omitempty"`
}

// LeadsToLoopback says whether ports of the host's loopback can be reached at the
// sandbox's own.
func (g *Gate) LeadsToLoopback() bool { return g != nil && len(g.Local)+len(g.LocalIPv6) > 0 }

// Exposure is a port of the host behind which a port of the sandbox is.
type Exposure struct {
	Address string `json:"address"` // of the host
	Port    uint16 `json:"port"`    // of the host; 0 lets it choose
	Inside  uint16 `json:"inside"`
}

// Ports of the gate inside. Programs in a sandbox cannot have these for
// themselves: the gate has them first.
const (
	GateProxyPort  = 940 // HTTP and SOCKS
	GateTCPPort    = 941 // connections to anywhere
	GateDNSPort    = 942 // questions for names
	GateInsidePort = 943 // by which the gate itself gets in; see Spec.Expose
)

// NeedsGate says whether the network gate has something to do.
func (s *Spec) NeedsGate() bool { return s.Gate != nil || s.HasInlet() }

// HasInlet says whether the gate has a way into the sandbox's network.
func (s *Spec) HasInlet() bool { return s.Inlet || len(s.Expose) > 0 }

// GateConfig is what the gate is told. Where nothing leads out, it only serves
// exposed ports.
func (s *Spec) GateConfig() config.Config {
	if s.Gate == nil {
		return config.Config{Version: config.Version, Default: config.Deny}
	}
	return s.Gate.Config
}

// Kind says what a Mount makes at its target.
type Kind string

const (
	// Dir is an empty directory in the private root.
	Dir Kind = "dir"
	// Symlink is a symbolic link to Source (its text) in the private root.
	Symlink Kind = "symlink"
	// Tmpfs is an empty writable directory in memory.
	Tmpfs Kind = "tmpfs"
	// Bind shows Source of the host, with everything mounted below it.
	Bind Kind = "bind"
	// Private shows Source of the host; writes go to memory.
	Private Kind = "private"
	// Hide puts an empty, unreadable file or directory in the place of what a
	// mount before it shows. Source is "file" or "dir".
	Hide Kind = "hide"
	// Proc, Dev are the fresh /proc and the minimal /dev.
	Proc Kind = "proc"
	Dev  Kind = "dev"
)

// Mount is one step in building the root directory.
type Mount struct {
	Kind   Kind   `json:"kind"`
	Target string `json:"target"`
	// Source is a path of the host without symbolic links, a link's text, or
	// for Hide the kind of thing hidden.
	Source string `json:"source,omitempty"`
	// Write leaves a Bind writable. Everything else that is not Tmpfs or
	// Private is read-only; everything is nosuid, and nodev but for /dev.
	Write bool `json:"write,omitempty"`
	// File says that Source is not a directory, so the target must be a file.
	File bool `json:"file,omitempty"`
	// Link says that it is a symbolic link, which is mounted itself and not what it
	// leads to.
	Link bool `json:"link,omitempty"`
	// Devices keeps device nodes usable (a single granted node).
	Devices bool `json:"devices,omitempty"`
	// Mode is the permission of a Dir or Tmpfs, 0755 if zero.
	Mode uint32 `json:"mode,omitempty"`
	// Way says that a Tmpfs stands in the place of something hidden, and only leads
	// to the mounts in it. It is read-only once those are made: what is written
	// there would look kept, and be lost.
	Way bool `json:"way,omitempty"`
	// Why names the rule this comes from, for explain: "filesystem.allowRead
	// /usr", "protected .git/hooks", "pin".
	Why string `json:"why,omitempty"`
}

// Landlock is a ruleset over paths inside the sandbox. All file rights the
// kernel knows are handled, so what no rule grants is refused.
type Landlock struct {
	// MinABI is the oldest interface that can hold this ruleset's promises.
	MinABI int `json:"minABI"`
	// Rules grant paths; File is set for anything that is not a directory.
	Rules []LandlockRule `json:"rules"`
	// ScopeAbstract and ScopeSignals keep abstract sockets and signals within
	// the sandbox (interface 6). With namespaces of their own for network and
	// processes they are a second wall, and skipped on kernels without them;
	// a Spec whose only wall they are sets MinABI to 6.
	ScopeAbstract bool `json:"scopeAbstract"`
	ScopeSignals  bool `json:"scopeSignals"`
}

// LandlockRule grants rights below a path. A runtime translates the flags to
// the rights its kernel knows.
type LandlockRule struct {
	Path    string `json:"path"`
	File    bool   `json:"file,omitempty"`
	List    bool   `json:"list,omitempty"` // directories, not the files in them
	Read    bool   `json:"read,omitempty"` // files and directories
	Write   bool   `json:"write,omitempty"`
	Remove  bool   `json:"remove,omitempty"` // of Write only that
	Execute bool   `json:"execute,omitempty"`
	Device  bool   `json:"device,omitempty"` // ioctl on device nodes
	// Truncate lets files be cut short by name, which is asked of the broker and
	// never of the kernel. Landlock looks for this right whenever a file is
	// opened, and where no rule grants it, goes on looking up to the root
	// directory: a tenth of the time of a search through many files.
	Truncate bool `json:"truncate,omitempty"`
}

// Seccomp chooses the system call filter. The list of refused calls is fixed
// (see package seccomp); these are its variations.
type Seccomp struct {
	// Families are the socket address families that may be created, by name.
	Families []string `json:"families"`
}

// Rlimit is one resource limit.
type Rlimit struct {
	Name  string `json:"name"` // "nofile", "nproc", "core"
	Value uint64 `json:"value"`
}

// Box returns the Spec without its command: what is left is the sandbox, and the
// same for every command that may run in it.
func (s *Spec) Box() *Spec {
	box := *s
	box.Argv, box.Exec, box.Env, box.Dir = nil, nil, nil, ""
	box.TimeoutMillis = 0
	box.Warnings, box.DroppedEnv, box.OmittedEnv = nil, nil, nil
	if s.Image != nil {
		box.Image = &Image{Name: s.Image.Name, ID: s.Image.ID, Dir: s.Image.Dir}
	}
	return &box
}
