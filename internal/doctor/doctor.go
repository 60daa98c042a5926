// Package doctor finds out what of a sandbox can be built on this machine by this
// user. Nothing is concluded from a version: every feature is tried, in a process
// that ends afterwards, and at the end the command itself runs something under
// the default policy. What does not work comes with the reason, where it is known,
// and with the command that mends it.
package doctor

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Check is one thing that was tried.
type Check struct {
	Name string `json:"name"`
	// OK says that it works here for this user.
	OK bool `json:"ok"`
	// Required says that the default policy is not enforced in full without it.
	Required bool `json:"required"`
	// For is what it is needed for.
	For string `json:"for"`
	// Found is what there is: a version, a path, the error of the kernel.
	Found string `json:"found,omitempty"`
	Cause string `json:"cause,omitempty"`
	Fix   string `json:"fix,omitempty"`
}

// Runtime is one of the ways to carry a sandbox.
type Runtime struct {
	Name string `json:"name"`
	// Holds says that a command ran under the default policy with it.
	Holds bool `json:"holds"`
	// Runs says that a command ran with it, under that policy or one that asks for
	// less.
	Runs bool `json:"runs"`
	// Says is what the command bailey said about it.
	Says string `json:"says,omitempty"`
}

// Report is everything that was found out.
type Report struct {
	Version  string    `json:"version"`
	Kernel   string    `json:"kernel"`
	Place    string    `json:"place"` // "a container", "WSL 2", "this machine"
	User     int       `json:"user"`
	Checks   []Check   `json:"checks"`
	Runtimes []Runtime `json:"runtimes"`
	// Full says that the default policy is enforced in full.
	Full bool `json:"full"`
}

// settle decides whether the default policy is enforced in full.
func (r *Report) settle() {
	r.Full = r.holds("native")
	for i := range r.Checks {
		r.Full = r.Full && (r.Checks[i].OK || !r.Checks[i].Required)
	}
}

func (r *Report) holds(runtime string) bool {
	for i := range r.Runtimes {
		if r.Runtimes[i].Name == runtime {
			return r.Runtimes[i].Holds
		}
	}
	return false
}

// JSON is the report for programs.
func (r *Report) JSON() (string, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return string(text) + "\n", err
}

// Text is the report for people: a line for each check, and what to do about those
// that failed.
func (r *Report) Text() string {
	var b strings.Builder
	b.WriteString(plain.Text("bailey " + r.Version + " on Linux " + r.Kernel + ", " + r.Place + ", user " + strconv.Itoa(r.User)))
	b.WriteString("\n\n")
	width := 0
	for i := range r.Checks {
		width = max(width, len(r.Checks[i].Name))
	}
	for i := range r.Checks {
		r.Checks[i].write(&b, width)
	}
	b.WriteString("\n")
	for _, run := range r.Runtimes {
		run.write(&b)
	}
	b.WriteString("\n" + r.conclusion() + "\n")
	return b.String()
}

func (c *Check) write(b *strings.Builder, width int) {
	state := "ok      "
	switch {
	case !c.OK && c.Required:
		state = "MISSING "
	case !c.OK:
		state = "absent  "
	}
	line := state + c.Name + strings.Repeat(" ", width-len(c.Name)+2) + c.For
	if c.Found != "" {
		line += " (" + c.Found + ")"
	}
	b.WriteString(plain.Text(line) + "\n")
	if c.OK {
		return
	}
	for _, more := range [][2]string{{"cause: ", c.Cause}, {"fix:   ", c.Fix}} {
		if more[1] != "" {
			b.WriteString("        " + more[0] + plain.Text(more[1]) + "\n")
		}
	}
}

func (r *Runtime) write(b *strings.Builder) {
	if r.Holds {
		b.WriteString("The " + r.Name + " runtime ran a command under the default policy.\n")
		return
	}
	if r.Runs {
		b.WriteString("The " + r.Name + " runtime ran a command, but not under the default policy:\n")
	} else {
		b.WriteString("The " + r.Name + " runtime ran nothing:\n")
	}
	for line := range strings.Lines(r.Says) {
		b.WriteString("        " + plain.Text(strings.TrimRight(line, "\n")) + "\n")
	}
}

func (r *Report) conclusion() string {
	switch {
	case r.Full:
		return "The default policy is enforced in full."
	case r.holds("native"):
		return "The default policy is enforced, but not all that it may need works: see what is MISSING."
	case r.holds("landlock"):
		return "The default policy is enforced by the landlock runtime, which is used by itself where the native one is not\n" +
			"possible. The command finds less than it should, and sees the names of other processes: docs/restricted-hosts.md."
	}
	return "The default policy cannot be enforced here, so no command runs."
}
