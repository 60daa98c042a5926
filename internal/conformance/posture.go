package conformance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Invariant is something that holds whatever a command does, and by what.
type Invariant struct {
	// Name says what holds.
	Name string
	// Properties of the suite that try it with every runtime.
	Properties []string
	// Walls hold it, by runtime. Where several runtimes have the same walls, the name
	// of a family stands for them; see families. What is said of a runtime by its own name
	// comes first.
	Walls map[string]string
	// Tests prove it besides, as "package.Test", by the package's directory below internal.
	Tests []string
}

// families are runtimes with the same walls.
var families = map[string]string{
	"native": "native", "landlock": "landlock", "bwrap": "native",
	"runc": "container", "crun": "container", "docker": "container",
	"gvisor": "gvisor", "docker+runsc": "gvisor",
}

// wall is what holds it with a runtime.
func (inv *Invariant) wall(runtime string) string {
	return cmp.Or(inv.Walls[runtime], inv.Walls[families[runtime]])
}

// Invariants are what is promised.
func Invariants() []Invariant { return slices.Clone(invariants) }

var invariants = []Invariant{
	{
		Name:       "Files that are not granted cannot be read or written",
		Properties: []string{"what is granted is read, what is not is not", "what is granted is written, what is not is not", "the home directory and /tmp are private"},
		Walls: map[string]string{
			"native":   "a root directory of nothing but the grants (mount namespace, `pivot_root`); Landlock with the same grants",
			"landlock": "Landlock alone; a private home and `/tmp` by their names in the environment",
			"container": "a bundle's root directory of nothing but the grants, each opened without following links; mounts read-only, `nosuid`, `nodev`, " +
				"`noexec` where nothing is to be executed; Landlock with the same grants, which the command puts up before it is executed",
			"gvisor": "the same mounts, seen through gVisor's own file system; the host's kernel gets no path from the command",
			"docker": "a read-only image of nothing but links and empty directories, and mounts of nothing but the grants, each opened without following links by Bailey and not by the engine; " +
				"read-only, `nosuid`, `nodev`, `noexec` where nothing is to be executed, which the first process looks at; Landlock with the same grants, which the command puts up before it is executed",
			"docker+runsc": "the same mounts as with docker, seen through gVisor's own file system; the host's kernel gets no path from the command",
		},
		Tests: []string{
			"escape.TestNothingIsWrittenOutsideTheGrant", "escape.TestSecretsOfTheHomeAreNotRead", "escape.TestSharedDirectoriesOfTheHostAreOutOfReach",
			"sandbox/oci.TestABundleWeakenedInAnyFieldIsRefused", "sandbox/oci.TestAChangeOfAnyFieldIsRefused", "sandbox/oci.TestAMountThatHasSomethingOfAnotherIsRefused",
		},
	},
	{
		Name:       "What is denied inside a grant stays denied",
		Properties: []string{"a denied path inside a grant is not read", "a denied path inside a grant is not written", "a file that a pattern denies is not read, however late it comes"},
		Walls: map[string]string{
			"native":    "mounts that hide or are read-only; the broker, which is asked at each open that a pattern could deny",
			"landlock":  "no rule of Landlock's for what is denied",
			"container": "mounts that hide or are read-only; the broker, outside of the container, which is asked at each open that a pattern could deny",
			"gvisor":    "mounts that hide what exists; no broker, so the rest is refused before anything runs",
		},
		Tests: []string{"escape.TestDeniedPathIsNotRead", "sandbox/oci.TestRefusalsNameThePartOfThePolicy"},
	},
	{
		Name:       "Hooks and settings that run later with the user's rights are not changed",
		Properties: []string{"git's hooks are not written", "git's hooks are not replaced by renaming what is above them", "a protected path that is a link is not replaced", "protected names do not come into being"},
		Walls: map[string]string{
			"native":    "a read-only mount over each, and a mount on every directory above it, which cannot be renamed then; the broker makes what is to be made, and no protected name",
			"landlock":  "Landlock grants neither writing nor making there; the broker makes what is to be made, and no protected name",
			"container": "read-only mounts as with native; the broker, outside of the container, makes what is to be made, and no protected name",
			"gvisor":    "read-only mounts as with native; without a broker, names that do not exist yet are refused by `filesystem.protectMissing`",
		},
		Tests: []string{"escape.TestProtectedFileIsNotWritten", "escape.TestRenamedParentStaysProtected", "escape.TestExchangedPathStaysProtected"},
	},
	{
		Name:       "Secrets of the environment and open files of the caller do not enter",
		Properties: []string{"the environment is a choice", "no descriptor but the streams is inherited"},
		Walls: map[string]string{
			"native":    "an allow-list of variables; all descriptors but the streams are closed first",
			"landlock":  "an allow-list of variables; all descriptors but the streams are closed first",
			"container": "the same list, and `Check` compares the bundle's with it; a stream that is a file is copied through a pipe",
			"gvisor":    "the same list, and `Check` compares the bundle's with it; a stream that is a file is copied through a pipe",
			"docker": "the same list, which the first process reads from a file that the command cannot write; nothing of the environment that the engine gives that process is passed on; " +
				"streams go through the engine",
			"docker+runsc": "the same list, which the first process reads from a file that the command cannot write; nothing of the environment that the engine gives that process is passed on; " +
				"streams go through the engine",
		},
		Tests: []string{"escape.TestOnlyStreamsAreInherited", "escape.TestDirectoryAsStreamIsRefused", "sandbox/oci.TestAStreamIsNotOpenedForMore", "sandbox/docker.TestContainersOfAnEngine"},
	},
	{
		Name:       "The network is closed, or leads through the gate",
		Properties: []string{"a closed network reaches nothing of the host", "abstract sockets of the host are not reached", "hosts are reached through the gate at a unix socket", "hosts are reached through the gate at a port"},
		Walls: map[string]string{
			"native":    "a network namespace with nothing but loopback; listeners in it that the gate serves from outside",
			"landlock":  "Landlock's rules for TCP and scope for abstract sockets; seccomp refuses what those do not cover",
			"container": "a network namespace with nothing but loopback; listeners in it that the gate serves from outside",
			"gvisor":    "`--network=none`: gVisor has no interface, and opens no socket of the host; the gate by a unix socket with `--host-uds=open`",
			"docker+runsc": "a network namespace with nothing but loopback; an engine that calls `runsc` with `--network=host` is refused for it; the gate by a unix socket, " +
				"if the engine calls `runsc` with `--host-uds=open`",
		},
		Tests: []string{"escape.TestHostIsNotReachedByAddress", "escape.TestAbstractSocketsOfTheHostAreOutOfReach", "escape.TestNoPacketLeavesByAddress", "escape.TestEgressSocketLetsOutWhatIsGrantedOnly", "sandbox/oci.TestTheGateIsReachedAtItsSocket", "sandbox/oci.TestTheGateIsReachedAtItsPorts", "sandbox/oci.TestTheHostsNetworkIsGivenOnlyToASpecThatSaysSo"},
	},
	{
		Name:       "Unix sockets of the host are reached only where they are granted",
		Properties: []string{"unix sockets of the host are reached only where they are granted"},
		Walls: map[string]string{
			"native":       "the broker decides each connection by the socket's path",
			"landlock":     "nobody could tell sockets apart, so it is refused",
			"container":    "the broker decides each connection by the socket's path, and makes it as the command's user",
			"gvisor":       "`--host-uds=none`, and seccomp; with `allowAllUnixSockets` what the mounts show",
			"docker+runsc": "seccomp: there are none but connected pairs; with `allowAllUnixSockets` what the mounts show, as far as the engine calls `runsc` with `--host-uds`",
		},
		Tests: []string{"escape.TestPathnameSocketsOfTheHostAreOutOfReach", "escape.TestSocketOfTheHostInTheProjectIsNotReached", "escape.TestNoOtherSocketGetsTheNameOfAnAllowedOne", "sandbox/oci.TestTheSocketOfTheGateIsShownOnlyWhereTheSpecSaysSo"},
	},
	{
		Name:       "No process outside is seen, signalled or traced",
		Properties: []string{"only its own processes are seen", "no process outside is signalled", "process 1 is not looked into"},
		Walls: map[string]string{
			"native":    "a process namespace; process 1 cannot be traced or read; Landlock's scope for signals",
			"landlock":  "Landlock's scope for signals and its rule about tracing",
			"container": "two process namespaces, one in the other; process 1 has no privileges and cannot be traced; Landlock's scope for signals",
			"gvisor":    "processes are gVisor's own, and have no number at the host; no `ptrace`",
			"docker":    "a process namespace of the container's; process 1 has no privileges and cannot be traced; Landlock's scope for signals",
		},
		Tests: []string{"escape.TestProcessesOutsideCannotBeInspected", "escape.TestSignalsDoNotReachTheHost", "sandbox/oci.TestOnlyGvisorHasNoTracers"},
	},
	{
		Name:       "There are no privileges, and none to be had",
		Properties: []string{"there are no privileges to be had", "nothing is mounted, and no namespace made", "no device node is made", "the machine is not configured"},
		Walls: map[string]string{
			"native":    "a user namespace, for root too; five empty sets of capabilities; no_new_privs; seccomp",
			"landlock":  "five empty sets of capabilities; no_new_privs; seccomp",
			"container": "root inside is nobody outside, and the command is not root inside if the caller is; five empty sets; no_new_privs; seccomp; masked and read-only paths of `/proc`",
			"gvisor":    "the same, towards gVisor's kernel; towards the host's, gVisor itself is without privileges and behind a filter of its own",
			"docker": "no user namespace: the command is nobody (65534), inside and outside, and so is process 1; five empty sets of capabilities; no_new_privs; seccomp; " +
				"masked and read-only paths of `/proc`, and all of `/sys` masked",
			"docker+runsc": "the same as with docker, towards gVisor's kernel; towards the host's, gVisor is behind a filter of its own",
		},
		Tests: []string{"escape.TestSetuidProgramGainsNothing", "escape.TestFileCapabilitiesGainNothing", "escape.TestNoNewNamespaces", "escape.TestMachineIsNotConfigured", "escape.TestMountsAreNotChanged", "escape.TestDeviceNodesAreNeitherMadeNorOpened", "sandbox/oci.TestNobodyInsideIsRootOutside", "sandbox/docker.TestWeakenedContainerIsRefused"},
	},
	{
		Name:       "Parts of the kernel that no command needs are out of reach",
		Properties: []string{"calls that no sandbox needs are refused"},
		Walls: map[string]string{
			"native":    "seccomp, with a check of the architecture; calls newer than the filter do not exist",
			"landlock":  "seccomp, with a check of the architecture; calls newer than the filter do not exist",
			"container": "the same filter in the runtime's words, compared with the native one on random calls; on top of it the native one itself, which asks the broker",
			"gvisor":    "gVisor answers the calls itself, and the same filter stands before it (`--oci-seccomp`)",
		},
		Tests: []string{"escape.TestKernelInterfacesAreClosed", "seccomp.TestAnotherArchitectureKills", "seccomp.TestDecisionsAgreeWithLibseccomp", "sandbox/oci.TestTranslatedFiltersDecideAsTheNativeOne"},
	},
	{
		Name:       "Limits hold for everything in the sandbox together",
		Properties: []string{"a limit of memory", "a limit of processes", "a limit of disk", "a limit of open files", "a limit of time"},
		Walls: map[string]string{
			"native":       "control groups, delegated ones for an ordinary user; file systems in memory of a size; rlimits",
			"landlock":     "rlimits; what needs a control group is refused",
			"container":    "the runtime's control group, for root; rlimits",
			"gvisor":       "the runtime's control group around gVisor and the command together, for root; rlimits",
			"docker":       "the engine's control group; rlimits",
			"docker+runsc": "the engine's control group around gVisor and the command together; rlimits",
		},
		Tests: []string{"limits.TestMemoryIsHeld", "limits.TestProcessorTimeIsHeld", "limits.TestProcessesAreHeld", "limits.TestALimitThatCannotBeHeldIsNamed"},
	},
	{
		Name:       "Nothing outlives its owner",
		Properties: []string{"what is left in the background ends with the command", "the command ends when bailey is killed", "what is left in the background ends when bailey is killed"},
		Walls: map[string]string{
			"native":    "the process namespace ends with process 1, which dies with the launcher's thread",
			"landlock":  "processes are ended one by one, as long as Bailey lives",
			"container": "a guard is process 1 of a namespace around the runtime and everything it started; it dies with its parent",
			"gvisor":    "a guard is process 1 of a namespace around gVisor and everything it started; it dies with its parent",
			"docker": "the container is the engine's: a guard, a process of its own, removes it when the command ends and when `bailey` is gone, and `bailey` does if the guard is killed; " +
				"if both are, its first process ends, which holds a connection to the guard",
			"docker+runsc": "as with docker, but if both are killed, the next start removes the container",
		},
		Tests: []string{
			"escape.TestDaemonDoesNotOutliveTheSandbox", "escape.TestDaemonDiesWithItsLauncher", "sandbox/oci.TestNothingOutlivesAKilledKeeper", "sandbox/oci.TestAPooledCommandEndsWithItsClient", "sandbox/oci.TestGroupsOfAKilledOwnerAreSwept", "sandbox/docker.TestContainersOfAnEngine",
		},
	},
	{
		Name:       "The caller's terminal is not typed into",
		Properties: []string{"a terminal is a terminal, and nothing is typed into the caller's"},
		Walls: map[string]string{
			"native":    "a terminal of the sandbox's own, and a session of its own; seccomp refuses `TIOCSTI` and `TIOCLINUX`",
			"landlock":  "a terminal of the sandbox's own, and a session of its own; seccomp refuses `TIOCSTI` and `TIOCLINUX`",
			"container": "a terminal that the runtime makes, and a session of its own; the same filter",
			"gvisor":    "a terminal that gVisor makes; the same filter",
			"docker":    "a terminal that the engine makes, and a session of its own; the same filter", "docker+runsc": "a terminal that gVisor makes; the same filter",
		},
		Tests: []string{"escape.TestNothingIsTypedIntoTheCallersTerminal", "escape.TestCommandKeepsTheTerminalToItself", "sandbox/oci.TestNothingIsTypedWhateverTheUpperHalfOfARequestIs"},
	},
	{
		Name:       "What was built beforehand is as strong, and was used by nobody",
		Properties: nil,
		Walls: map[string]string{
			"native":    "nothing is built beforehand",
			"landlock":  "nothing is built beforehand",
			"container": "the same bundle through the same `Check`; found by a hash of all that is decided, and given to one command",
			"gvisor":    "the same bundle through the same `Check`; found by a hash of all that is decided, and given to one command",
			"docker":    "nothing is built beforehand", "docker+runsc": "nothing is built beforehand",
		},
		Tests: []string{
			"sandbox/oci.TestASandboxThatWaitedIsLikeOneThatWasBuilt", "sandbox/oci.TestASandboxThatWaitedWasUsedByNobody", "sandbox/oci.TestAReplacedFileIsSeen",
			"keeper.TestSandboxForAnotherSpecIsNotGiven", "keeper.TestKeyChangesWithEverythingButTheCommand",
		},
	},
}

const postureHead = `# Security posture

What holds whatever a command does, which wall holds it under each runtime, and which tests prove it. [threat-model.md](threat-model.md) says against whom,
[security.md](security.md) goes through the walls of the native runtime and the attacks on them, and [conformance.md](conformance.md) is what was seen of
each property.

This page is generated from ` + "`internal/conformance/posture.go`" + ` and from conformance.md. A test fails if a test that it names does not exist, if a property of
the suite belongs to no invariant, or if it does not agree with conformance.md:

` + "```sh\ngo test ./internal/conformance -run TestPosture -update\n```\n" + `
Under "seen": **held** by every property as root and as an ordinary user; **refused**: a policy that asks for it is refused by its key, and nothing runs;
**held or refused**: some of it is held and the rest refused; **not held**: at least one property is not, as conformance.md says; **not here**: the machine
on which conformance.md was made does not have the runtime.
`

// Posture is the page: each invariant with its walls, what was seen of it, and its tests.
func Posture(invariants []Invariant, runtimes []string, page map[string]Seen) string {
	var b strings.Builder
	b.WriteString(postureHead)
	for _, inv := range invariants {
		b.WriteString("\n## " + inv.Name + "\n\n| runtime | wall | seen |\n|---|---|---|\n")
		for _, runtime := range runtimes {
			b.WriteString("| " + runtime + " | " + inv.wall(runtime) + " | " + inv.outcome(runtime, page) + " |\n")
		}
		if len(inv.Properties) > 0 {
			b.WriteString("\nProperties: " + strings.Join(inv.Properties, "; ") + ".\n")
		}
		b.WriteString("\nTests:")
		for i, test := range inv.Tests {
			dir, name, _ := strings.Cut(test, ".")
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString(" `" + name + "` (" + dir + ")")
		}
		b.WriteString(".\n")
	}
	return b.String()
}

// outcome sums up what was seen of an invariant with a runtime, by every kind of user.
func (inv *Invariant) outcome(runtime string, page map[string]Seen) string {
	if len(inv.Properties) == 0 {
		return "by the tests"
	}
	kinds := map[string]bool{}
	for _, seen := range page {
		if seen[runtime] == nil {
			continue
		}
		for _, property := range inv.Properties {
			cell := seen[runtime][property]
			if strings.HasPrefix(cell, string(NotHeld)) {
				cell = string(NotHeld)
			}
			kinds[cell] = true
		}
	}
	switch list := slices.Sorted(maps.Keys(kinds)); {
	case len(list) == 0:
		return notHere
	case kinds[string(NotHeld)]:
		return string(NotHeld)
	case len(list) == 1:
		return list[0]
	default:
		return strings.Join(list, " or ")
	}
}
