package main

// runDoctor has the machine examined, by flags as the program that does so takes
// them.
func runDoctor(r *request) int {
	if err := r.noArguments(); err != nil {
		return fail(err)
	}
	var args []string
	for _, f := range []struct {
		given bool
		name  string
	}{{r.json, "--json"}, {r.fix, "--fix"}, {r.yes, "--yes"}} {
		if f.given {
			args = append(args, f.name)
		}
	}
	return r.become("baileyd", args...)
}
