package main

func doctorVerb() verb {
	return verb{name: "doctor", args: "[--json] [--fix [--yes]]", text: "what works on this machine, and how to mend the rest", run: runDoctor, flags: []flag{
		{"json", "", "", "print one object, for programs", hintNone, func(r *request, _ string) error { r.json = true; return nil }},
		{"fix", "", "", "change what can be changed, after asking", hintNone, func(r *request, _ string) error { r.fix = true; return nil }},
		{"yes", "y", "", "do not ask", hintNone, func(r *request, _ string) error { r.yes = true; return nil }},
	}}
}
