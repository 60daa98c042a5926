package conformance

import (
	"slices"
	"strings"
)

// Outcome is what was seen of a property.
type Outcome string

const (
	// Held says that every probe failed and every control succeeded.
	Held Outcome = "held"
	// Refused says that the runtime refused a policy that asks for it, by name.
	Refused Outcome = "refused"
	// NotHeld says that the property does not hold, which the runtime's documents
	// state.
	NotHeld Outcome = "not held"
	// Failed says that the suite failed.
	Failed Outcome = "failed"
)

// Seen is what was seen of every property, by runtime and name. A runtime that is
// missing does not work on the machine.
type Seen map[string]map[string]string

const (
	pageHead = `# What each runtime holds

One policy means the same behind every runtime: what a runtime cannot hold it refuses by name, before anything runs. This page is what the conformance
suite (` + "`internal/conformance`" + `) saw when it tried each property with each runtime, as root and as an ordinary user; a test fails when what it sees on a machine
does not agree with it. Each probe that must fail has a control, with the same runtime, that must succeed.

- **held**: every probe failed, and every control succeeded.
- **refused**: a policy that asks for it is refused by its key, and nothing runs.
- **not held**: as the linked page says.
- **not here**: the machine on which this page was made does not have the runtime, or does not let this user use it.

Where a limit can be held is the machine's doing too: see [limits](limits.md). The column "gvisor (ptrace)" is gVisor on a machine where its platform
systrap does not start; it is tried in long runs (` + "`BAILEY_LONG=1`" + `).

` + "```sh\ngo test ./internal/conformance -update   # as each of the two\n```\n"
	servedHead = `
## Over the API

Sandboxes of the [server](server.md) that stand behind ` + "`native`, `bwrap`, `runc`, `crun` and `gvisor`" + ` are tried by the same suite: the project becomes a codebase, a
command is executed in a sandbox on it, and what became of the workspace is looked at. What the tables say of a command is seen of them, too, but for what
follows. A part of it is tried in every run of the tests, behind ` + "`native`, and all of it with `scripts/test --long`" + `.

`
	notHere = "not here"
)

// Page is the document: a section for each kind of user.
func Page(users []string, runtimes, properties []string, seen map[string]Seen) string {
	var b strings.Builder
	b.WriteString(pageHead + servedPart())
	for _, user := range users {
		b.WriteString("\n## As " + user + "\n\n| property | " + strings.Join(runtimes, " | ") + " |\n|---" + strings.Repeat("|---", len(runtimes)) + "|\n")
		for _, property := range properties {
			b.WriteString("| " + property)
			for _, runtime := range runtimes {
				cell := seen[user][runtime][property]
				if cell == "" {
					cell = notHere
				}
				b.WriteString(" | " + cell)
			}
			b.WriteString(" |\n")
		}
	}
	return b.String()
}

// servedPart says where sandboxes of the server's differ.
func servedPart() string {
	var b strings.Builder
	b.WriteString(servedHead)
	for _, e := range ServedExceptions() {
		outcome := e.Outcome
		if outcome == "" {
			outcome = "not tried"
		}
		b.WriteString("- " + e.Property)
		if e.Runtimes != nil {
			b.WriteString(", with " + strings.Join(e.Runtimes, " and "))
		}
		b.WriteString(": **" + string(outcome) + "**, because " + e.Why + ".\n")
	}
	return b.String()
}

// ParsePage reads back what Page wrote, for users by their names.
func ParsePage(text string) map[string]Seen {
	all := make(map[string]Seen)
	var seen Seen
	var runtimes []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if user, ok := strings.CutPrefix(line, "## As "); ok {
			seen = make(Seen)
			all[user] = seen
			continue
		}
		cells, ok := rowOf(line)
		switch {
		case !ok || seen == nil || strings.HasPrefix(line, "|---"):
		case cells[0] == "property":
			runtimes = cells[1:]
		default:
			seen.add(runtimes, cells)
		}
	}
	return all
}

// rowOf takes a row of a table apart.
func rowOf(line string) ([]string, bool) {
	if !strings.HasPrefix(line, "| ") {
		return nil, false
	}
	return strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | "), true
}

// add takes in a row. What is not here is left out.
func (s Seen) add(runtimes, cells []string) {
	for i, cell := range cells[1:] {
		if cell == notHere || i >= len(runtimes) {
			continue
		}
		name := runtimes[i]
		if s[name] == nil {
			s[name] = make(map[string]string)
		}
		s[name][cells[0]] = cell
	}
}

// Differ says where a page and what was seen do not agree, for the runtimes that
// were seen. Where the machine has a say, a refusal agrees with everything.
func Differ(page, seen Seen, depends []string) (list []string) {
	for runtime, properties := range seen {
		for property, cell := range properties {
			had := page[runtime][property]
			if had == cell || slices.Contains(depends, property) && (had == string(Refused) || cell == string(Refused)) {
				continue
			}
			list = append(list, runtime+": "+property+": "+cell+", and the page says "+had)
		}
	}
	slices.Sort(list)
	return list
}
