package main

import (
	"errors"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// imageRequest is what the flags about another system's root directory ask for.
type imageRequest struct {
	ref     string
	rootfs  string
	user    string // who the command is to be there
	workdir string // and where it starts

	// What was found.
	found  *spec.Image
	config image.Config
}

// imageFlags are those about images, for verbs that run nothing.
func imageFlags() []flag {
	return slices.DeleteFunc(slices.Clone(runFlags), func(f flag) bool {
		return f.long != "image" && f.long != "rootfs" && f.long != "user" && f.long != "workdir"
	})
}

// inImage is the command as an image has it: its entry point stands before the words, and
// its own words take their place if there are none.
func (q *imageRequest) inImage(argv []string) ([]string, error) {
	if q.found == nil {
		return argv, nil
	}
	if len(argv) == 0 {
		argv = q.config.Cmd
	}
	argv = slices.Concat(q.config.Entrypoint, argv)
	if len(argv) == 0 {
		return nil, errors.New("no command, and the image has none; for example: bailey run --image " + printable(q.found.Name) + " -- sh")
	}
	return argv, nil
}

// runVerb is for people who know it from containers: the same as without a verb.
func runVerb() verb {
	return verb{
		name: "run", args: "[--image IMAGE | --rootfs DIR] [-- CMD…]", text: "run a command, also in an OCI image", command: true, agents: true,
		flags: runFlags, run: func(r *request) int { return r.runCommand(nil) },
	}
}

func imageVerb() verb {
	return verb{
		name: "image", args: "list|pull IMAGE…|remove IMAGE…", text: "the images that commands were run in", words: []string{"list", "pull", "remove"},
		run: func(r *request) int { return r.become("baileyd", r.args...) },
	}
}
