package conformance

import "github.com/bailey-sandbox/bailey/internal/spec"

// Served are the runtimes that a server has sandboxes of.
func Served() []string {
	return []string{spec.RuntimeNative, spec.RuntimeBwrap, "runc", "crun", "gvisor"}
}

// Exception is a property of which a sandbox of a server's differs from a command.
type Exception struct {
	Property string
	// Outcome is what is seen of it instead; empty if it cannot be tried over the API.
	Outcome Outcome
	// Runtimes are those it concerns; nil is all.
	Runtimes []string
	Why      string
}

// ServedExceptions are where a sandbox of a server's is meant to differ from a single
// command's.
func ServedExceptions() []Exception {
	stays := "a sandbox of the server's goes on until it is destroyed"
	copied := "a codebase is a copy of the project, and sockets are not copied"
	unasked := "containers that stay have no broker that could decide"
	containers := []string{"runc", "crun"}
	told := "it is told in events and results, and not as the command does"
	return []Exception{
		{Property: "what the command asks for and does not get is told", Why: told},
		{Property: "what the command used is told", Why: told},
		{Property: "the environment is a choice", Why: "nothing of the server's environment is to be had; what commands get is in the request"},
		{Property: "what is left in the background ends with the command", Why: stays},
		{Property: "the command ends when bailey is killed", Why: stays},
		{Property: "what is left in the background ends when bailey is killed", Why: stays},
		{Property: "unix sockets of the host are reached only where they are granted", Why: copied},
		{Property: "abstract sockets of the host are not reached", Why: copied},
		{Property: "a limit of disk", Outcome: Refused, Why: "what a sandbox that stays changes is on the disk, where nobody counts it"},
		{Property: "a denied path inside a grant is not written", Outcome: Refused, Runtimes: containers, Why: unasked},
		{Property: "a file that a pattern denies is not read, however late it comes", Outcome: Refused, Runtimes: containers, Why: unasked},
		{Property: "protected names do not come into being", Outcome: Refused, Runtimes: containers, Why: unasked},
		{Property: "the default policy", Outcome: Refused, Runtimes: containers, Why: unasked},
		{Property: "rules about commands hold at every exec", Outcome: Refused, Runtimes: containers, Why: unasked},
		{Property: "a terminal is a terminal, and nothing is typed into the caller's", Runtimes: []string{"gvisor"}, Why: "a sandbox that stays has no terminals there"},
	}
}

// ServedOutcome is what must be seen of a property over the API, where the command has an
// outcome, and why; empty if it is not to be tried.
func ServedOutcome(runtime, property string, command Outcome) (want Outcome, why string) {
	for _, e := range ServedExceptions() {
		if e.Property == property && e.concerns(runtime) {
			return e.Outcome, e.Why
		}
	}
	return command, "as the command"
}

func (e *Exception) concerns(runtime string) bool {
	for _, name := range e.Runtimes {
		if name == runtime {
			return true
		}
	}
	return e.Runtimes == nil
}
