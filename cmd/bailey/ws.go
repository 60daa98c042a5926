package main

import "slices"

// workspaceWords are what "bailey ws" can do.
var workspaceWords = []string{"list", "diff", "apply", "undo", "discard", "snapshot", "snapshots", "fork", "rollback", "squash", "export"}

func workspaceVerb() verb {
	return verb{
		name: "ws", args: "list | diff|apply NAME [PATHS] | undo NAME | discard NAME… | snapshot|snapshots|squash NAME | fork NAME NEW [SNAPSHOT] | rollback NAME SNAPSHOT | export NAME [SNAPSHOT]",
		text: "changes that were kept apart (see --overlay): look at them, apply them, undo that; snapshots and forks", words: workspaceWords, run: runWorkspaces,
		flags: []flag{
			{"stat", "", "", "with diff: only which files differ", hintNone, forward("--stat")},
			{"patch", "", "", "with diff: as a patch for git apply", hintNone, forward("--patch")},
			{"json", "", "", "with list and diff: for programs", hintNone, forward("--json")},
			{"merge", "", optionalValue + "markers]", "with apply: merge texts that were changed meanwhile; with markers, also where both changed the same lines", hintNone, forward("--merge")},
			{"oci", "", "", "with export: what differs, as a layer of a container image", hintNone, forward("--oci")},
		},
	}
}

// forward hands a flag on to the program that knows it.
func forward(name string) func(*request, string) error {
	return func(r *request, v string) error {
		word := name
		if v != "" {
			word += "=" + v
		}
		r.forward = append(r.forward, word)
		return nil
	}
}

// forwardValue hands on a flag that means nothing without a value.
func forwardValue(name string) func(*request, string) error {
	return func(r *request, v string) error {
		if v == "" {
			return errEmpty
		}
		return forward(name)(r, v)
	}
}

func runWorkspaces(r *request) int {
	if len(r.args) == 0 || !slices.Contains(workspaceWords, r.args[0]) {
		return fail(r.usage())
	}
	args := append(slices.Clone(r.forward), "--")
	return r.become("baileyd", append(args, r.args...)...)
}
