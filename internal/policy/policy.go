// Package policy holds what a person grants: the policy types, their file
// format, how files extend one another, which files are trusted, and the
// presets. A Policy is pure data; nothing here looks at the machine a command
// will run on, except to find and read policy files.
//
// The struct below is the only schema. The decoder, the command line, the
// published JSON Schema and the API all read its tags: json names the key, doc
// describes it, enum lists the values a string may take, check names the syntax
// of a string (see check.go), and min and max bound a number.
package policy

// Policy is a set of grants and restrictions. The zero value says nothing;
// pointers and nil slices mean "not said", so that merging can tell silence
// from an explicit false.
type Policy struct {
	Schema     string     `json:"$schema,omitempty" doc:"address of the JSON Schema, for editors"`
	Extends    StringList `json:"extends,omitempty" doc:"policies this one builds on: a preset's name, a file, or @user; one or a list"`
	Filesystem Filesystem `json:"filesystem,omitzero" doc:"which files can be read, written and executed"`
	Network    Network    `json:"network,omitzero" doc:"which hosts, ports and sockets can be reached"`
	Command    Command    `json:"command,omitzero" doc:"which programs may be run with which arguments"`
	SSH        SSH        `json:"ssh,omitzero" doc:"which hosts ssh may reach and which remote commands it may run"`
	Devices    Devices    `json:"devices,omitzero" doc:"which device nodes exist in /dev"`
	AllowPty   *bool      `json:"allowPty,omitempty" doc:"whether the command may allocate pseudo-terminals"`
	MacOS      MacOS      `json:"macos,omitzero" doc:"settings that only macOS has; accepted and ignored elsewhere"`
	Env        Env        `json:"env,omitzero" doc:"which environment variables enter"`
	Resources  Resources  `json:"resources,omitzero" doc:"limits on memory, processor, processes, disk, descriptors and time"`
	Workspace  Workspace  `json:"workspace,omitzero" doc:"how the project directory is presented"`
	Runtime    *string    `json:"runtime,omitempty" enum:"auto,native,landlock,bwrap,runc,crun,gvisor,docker,docker+runsc,seatbelt" doc:"which wall carries the sandbox"`
	Image      *string    `json:"image,omitempty" check:"image" doc:"OCI image that commands run in: a reference, or the path of a layout or an archive, beginning with /, ./, ../ or ~/"`
	Require    []string   `json:"require,omitempty" enum:"userns,mountns,pidns,netns,landlock,seccomp" doc:"layers without which nothing runs; without any, a machine that makes no namespaces uses the landlock runtime, if that holds the policy"`

	// Bounds are further file-system policies that every path grant must also
	// satisfy. Intersect fills it; it has no key in the file.
	Bounds []Filesystem `json:"-"`
	// RuleBounds are further lists of path permissions that must all agree with
	// the workspace's own. Intersect fills it; it has no key in the file.
	RuleBounds [][]WorkspaceRule `json:"-"`

	// Origins says where each entry was written. It is empty for a policy that
	// came from no file.
	Origins Origins `json:"-"`
}

// Filesystem grants paths. A path is absolute, starts with ~/ (the home
// directory), or is relative to the project directory. A path names itself and
// everything below it. Patterns with *, ?, [ or { are decided when a file is
// opened.
//
// Where several entries cover a path: for reading the most specific entry wins
// and a denial wins a tie (with strictDenyRead a denial always wins); for
// writing a denial always wins. A path that can be written can be read, unless
// a denyRead says otherwise.
type Filesystem struct {
	AllowRead       []string `json:"allowRead,omitempty" check:"path" doc:"paths that can be read"`
	DenyRead        []string `json:"denyRead,omitempty" check:"path" doc:"paths whose content and listing are hidden"`
	AllowWrite      []string `json:"allowWrite,omitempty" check:"path" doc:"paths that can be read and written"`
	DenyWrite       []string `json:"denyWrite,omitempty" check:"path" doc:"paths that cannot be written, whatever else is granted"`
	PrivateWrite    []string `json:"privateWrite,omitempty" check:"path" doc:"paths that can be read, and written without the host seeing it: writes live in memory and vanish with the sandbox"`
	AllowExecute    []string `json:"allowExecute,omitempty" check:"path" doc:"if given, the only paths programs can be executed from, besides the system's own"`
	DefaultDenyRead *bool    `json:"defaultDenyRead,omitempty" doc:"true (the default): only granted paths can be read; false: everything can be read except denyRead"`
	StrictDenyRead  *bool    `json:"strictDenyRead,omitempty" doc:"true: denyRead wins over a more specific allowRead"`
	ProtectMissing  *bool    `json:"protectMissing,omitempty" doc:"true (the default): protected names that do not exist yet cannot be created; false: they can, and creating files costs no more than without a sandbox"`
	AllowGitConfig  *bool    `json:"allowGitConfig,omitempty" doc:"true: .git/config of the project can be written (hooks stay protected)"`
}

// Network grants hosts. Without an entry in allowedDomains the network is
// closed; "*" opens it to everything.
type Network struct {
	AllowedDomains          []string       `json:"allowedDomains,omitempty" check:"domain" doc:"hosts that can be reached: exact, *.suffix, *, an address, or a group such as @npm"`
	DeniedDomains           []string       `json:"deniedDomains,omitempty" check:"domain" doc:"hosts that cannot be reached, whatever else is granted"`
	AllowLocalBinding       *bool          `json:"allowLocalBinding,omitempty" doc:"whether the command may listen on ports of the host, where it has the host's network; in a network of its own it may listen on every port"`
	ExposePorts             []string       `json:"exposePorts,omitempty" check:"exposure" doc:"ports of the sandbox that can be reached from the host: [ADDR:]PORT[:INSIDE]"`
	AllowLocalOutbound      *bool          `json:"allowLocalOutbound,omitempty" doc:"whether services on the host's loopback can be reached"`
	AllowLocalOutboundPorts []string       `json:"allowLocalOutboundPorts,omitempty" check:"port" doc:"ports of the host's loopback that can be reached, or *"`
	AllowUnixSockets        []string       `json:"allowUnixSockets,omitempty" check:"path" doc:"unix sockets of the host that can be reached"`
	AllowAllUnixSockets     *bool          `json:"allowAllUnixSockets,omitempty" doc:"whether every unix socket in a readable path can be reached"`
	HTTPProxyPort           *int           `json:"httpProxyPort,omitempty" min:"1" max:"65535" doc:"port on the host's loopback of an HTTP proxy through which connections leave; it decides about hosts if the policy names none"`
	SOCKSProxyPort          *int           `json:"socksProxyPort,omitempty" min:"1" max:"65535" doc:"port on the host's loopback of a SOCKS 5 proxy through which connections leave; it decides about hosts if the policy names none"`
	UpstreamProxy           *string        `json:"upstreamProxy,omitempty" check:"proxy" doc:"proxy through which allowed connections leave"`
	DefaultAction           *string        `json:"defaultAction,omitempty" enum:"deny,ask,proxy" doc:"what happens to a host no rule names"`
	Rules                   []NetworkRule  `json:"rules,omitempty" doc:"ordered rules; the first that matches decides"`
	AllowedCIDRs            []string       `json:"allowedCIDRs,omitempty" check:"cidr" doc:"address ranges that can be reached directly and that allowed names may resolve to"`
	Egress                  *string        `json:"egress,omitempty" enum:"loopback,socket" doc:"where the network gate is inside: at a port of loopback, or only at the unix socket /.bailey/gate.sock"`
	Transparent             *bool          `json:"transparent,omitempty" doc:"whether programs that ignore proxy variables are served too"`
	Inject                  []Injection    `json:"inject,omitempty" doc:"credentials added to requests outside the sandbox"`
	Limits                  *NetworkLimits `json:"limits,omitempty" doc:"limits on connections, headers, time and bandwidth"`
}

// NetworkRule is one ordered rule.
type NetworkRule struct {
	Host    string   `json:"host" check:"domain" doc:"host the rule is for, as in allowedDomains"`
	Ports   []string `json:"ports,omitempty" check:"port" doc:"ports or ranges (\"8000-8100\")"`
	Schemes []string `json:"schemes,omitempty" enum:"http,https,ssh,tcp" doc:"protocols"`
	Methods []string `json:"methods,omitempty" check:"method" doc:"HTTP methods"`
	Paths   []string `json:"paths,omitempty" check:"urlPath" doc:"HTTP path patterns"`
	Action  string   `json:"action" enum:"allow,deny,ask" doc:"what happens"`
	Inspect *bool    `json:"inspect,omitempty" doc:"whether TLS is opened to see methods and paths"`
}

// Injection adds a credential to requests for some hosts. The value comes from
// exactly one of fromEnv, fromFile and fromCommand, read outside the sandbox.
type Injection struct {
	Hosts       []string `json:"hosts" check:"domain" doc:"hosts whose requests get the credential"`
	Header      string   `json:"header,omitempty" doc:"header to set; the value replaces {}"`
	Format      string   `json:"format,omitempty" doc:"text around the value, for example \"Bearer {}\""`
	Bearer      *bool    `json:"bearer,omitempty" doc:"send as a bearer token"`
	Basic       string   `json:"basic,omitempty" doc:"send as basic authentication for this user"`
	Query       string   `json:"query,omitempty" doc:"send as this query parameter"`
	FromEnv     string   `json:"fromEnv,omitempty" check:"name" doc:"environment variable of the host"`
	FromFile    string   `json:"fromFile,omitempty" check:"path" doc:"file of the host"`
	FromCommand []string `json:"fromCommand,omitempty" doc:"command of the host that prints it"`
	Placeholder string   `json:"placeholder,omitempty" check:"placeholder" doc:"environment variable set inside to a placeholder"`
	Optional    *bool    `json:"optional,omitempty" doc:"leave the entry out where the variable of fromEnv is not set"`
}

// NetworkLimits bound what the network gate serves.
type NetworkLimits struct {
	Connections *int      `json:"connections,omitempty" min:"1" doc:"connections at once"`
	HeaderBytes *Size     `json:"headerBytes,omitempty" doc:"size of a request's header"`
	Idle        *Duration `json:"idle,omitempty" doc:"time without a byte"`
	Total       *Duration `json:"total,omitempty" doc:"time of one connection"`
	Bandwidth   *Size     `json:"bandwidth,omitempty" doc:"bytes a second"`
}

// Command rules are guard rails over argv; see docs/policy.md.
type Command struct {
	Deny                                []string `json:"deny,omitempty" check:"command" doc:"command prefixes that are refused"`
	Allow                               []string `json:"allow,omitempty" doc:"command prefixes that are allowed although denied"`
	UseDefaults                         *bool    `json:"useDefaults,omitempty" doc:"whether the built-in list of dangerous commands is denied"`
	RuntimeExecPolicy                   *string  `json:"runtimeExecPolicy,omitempty" enum:"off,path,argv" doc:"how far rules follow child processes"`
	AcceptSharedBinaryCannotRuntimeDeny []string `json:"acceptSharedBinaryCannotRuntimeDeny,omitempty" doc:"known from other tools; accepted, has no effect here"`
}

// SSH rules.
type SSH struct {
	AllowedHosts     []string `json:"allowedHosts,omitempty" check:"host" doc:"hosts ssh may reach"`
	DeniedHosts      []string `json:"deniedHosts,omitempty" check:"host" doc:"hosts ssh may not reach"`
	AllowedCommands  []string `json:"allowedCommands,omitempty" doc:"remote commands that may be run"`
	DeniedCommands   []string `json:"deniedCommands,omitempty" check:"command" doc:"remote commands that may not be run"`
	AllowAllCommands *bool    `json:"allowAllCommands,omitempty" doc:"whether any remote command may be run"`
	InheritDeny      *bool    `json:"inheritDeny,omitempty" doc:"whether command.deny holds for remote commands"`
}

// Devices chooses what /dev holds.
type Devices struct {
	Mode  *string  `json:"mode,omitempty" enum:"auto,minimal,host" doc:"minimal: the nodes every program needs; host: all nodes of the host"`
	Allow []string `json:"allow,omitempty" check:"device" doc:"further device nodes, for example /dev/kvm"`
}

// MacOS holds what only Seatbelt knows.
type MacOS struct {
	Mach                MacOSMach `json:"mach,omitzero" doc:"mach services"`
	AllowTrustd         *bool     `json:"allowTrustd,omitempty" doc:"whether trustd can be reached"`
	EnableWeakerSandbox *bool     `json:"enableWeakerNestedSandbox,omitempty" doc:"known from other tools"`
	AllowAppleEvents    *bool     `json:"allowAppleEvents,omitempty" doc:"whether Apple events can be sent"`
}

// MacOSMach lists mach services.
type MacOSMach struct {
	Lookup   []string `json:"lookup,omitempty" doc:"services that can be looked up"`
	Register []string `json:"register,omitempty" doc:"services that can be registered"`
}

// Env chooses environment variables. A name may end in * in allow and deny.
// An exact name in allow lets a variable in even if it looks like a secret.
type Env struct {
	Allow []string          `json:"allow,omitempty" check:"names" doc:"variables that enter, besides the built-in list; an exact name wins over the secret filters"`
	Deny  []string          `json:"deny,omitempty" check:"names" doc:"variables that do not enter"`
	Set   map[string]string `json:"set,omitempty" check:"name" doc:"variables set inside"`
}

// Resources are limits.
type Resources struct {
	Memory    *Size     `json:"memory,omitempty" doc:"memory, for example \"512M\""`
	CPU       *float64  `json:"cpu,omitempty" min:"0.01" doc:"processors, for example 0.5"`
	Pids      *int      `json:"pids,omitempty" min:"1" doc:"processes and threads"`
	Disk      *Size     `json:"disk,omitempty" doc:"bytes written to private storage, or to an overlay"`
	OpenFiles *int      `json:"openFiles,omitempty" min:"1" doc:"descriptors of one process"`
	Timeout   *Duration `json:"timeout,omitempty" doc:"time after which the command is ended, for example \"10m\""`
}

// Workspace presents the project directory.
type Workspace struct {
	Mode  *string         `json:"mode,omitempty" enum:"direct,overlay" doc:"direct: writes reach the project; overlay: they go to a private layer"`
	Rules []WorkspaceRule `json:"rules,omitempty" doc:"permissions by path"`
}

// WorkspaceRule is one path permission.
type WorkspaceRule struct {
	Pattern    string `json:"pattern" check:"rule" doc:"paths relative to the project, with * ? [] {} and **; ! in front: all other paths"`
	Permission string `json:"permission" enum:"none,view,read,write" doc:"none: it does not exist; view: its name and size; read: its content; write: everything"`
	Priority   *int   `json:"priority,omitempty" doc:"decides where no matching rule is more specific than another: the highest, and of the same the last rule"`
}
