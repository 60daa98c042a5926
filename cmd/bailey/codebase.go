package main

import "slices"

// codebaseWords are what "bailey codebase" can do.
var codebaseWords = []string{"import", "list", "remove", "start", "save", "export", "push", "pull"}

func codebaseVerb() verb {
	return verb{
		name: "codebase", args: "import NAME SOURCE | list | remove NAME… | start NAME WORKSPACE [DIR] | save WORKSPACE SNAPSHOT NAME | export NAME | push|pull NAME STORE",
		text: "projects that workspaces begin with: import them, start from them, share them", words: codebaseWords, run: runCodebases,
		flags: []flag{
			{"gitignore", "", "", "with import of a directory: leave out what git ignores", hintNone, forward("--gitignore")},
			{"git", "", "", "with import: the directory is a git repository; import a commit of it", hintNone, forward("--git")},
			{"revision", "", "REV", "with import from git: which commit (default: HEAD)", hintNone, forwardValue("--revision")},
			{"base", "", "NAME", "with import of an archive: a layer on top of this codebase", hintNone, forwardValue("--base")},
			{"oci", "", "", "with import and export of archives: as a layer of a container image", hintNone, forward("--oci")},
			{"json", "", "", "with list: for programs", hintNone, forward("--json")},
		},
	}
}

func runCodebases(r *request) int {
	if len(r.args) == 0 || !slices.Contains(codebaseWords, r.args[0]) {
		return fail(r.usage())
	}
	args := append(slices.Clone(r.forward), "--")
	return r.become("baileyd", append(args, r.args...)...)
}
