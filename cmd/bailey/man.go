package main

import (
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/version"
)

//go:generate sh -c "go run . man >../../docs/man/bailey.1"

func runMan(r *request) int { return r.plain(manPage()) }

// manPage is the manual page as roff, from the same tables as the help.
func manPage() string {
	m := &roff{}
	m.line(`.TH BAILEY 1 "" "Bailey `, version.Version, `" "User Commands"`)
	m.section("NAME")
	m.text(`bailey - run a command with exactly the files, network, secrets and resources it was granted`)
	m.section("SYNOPSIS")
	for _, s := range []string{"[FLAGS] [--] CMD [ARGS…]", "[FLAGS] -c LINE [ARGS…]", "[FLAGS] VERB …"} {
		m.line(".B bailey")
		m.text(s)
		m.line(".br")
	}
	m.section("EXAMPLES")
	for _, e := range examples() {
		m.item(e.line, e.text)
	}
	m.section("DESCRIPTION")
	for _, p := range manDescription() {
		m.line(".PP")
		m.text(p)
	}
	m.section("FLAGS")
	for _, f := range slices.Concat(flags, runFlags) {
		m.item(strings.TrimSpace(f.spelling()), f.text)
	}
	m.section("VERBS")
	for _, v := range verbs() {
		m.item(strings.TrimSpace(v.name+" "+v.args), v.text)
		for i := range v.flags {
			m.item("  "+strings.TrimSpace(v.flags[i].spelling()), v.flags[i].text)
		}
	}
	m.section("ENVIRONMENT")
	for _, v := range variables() {
		m.item(v[0], v[1])
	}
	m.section("FILES")
	m.item("bailey.jsonc, bailey.json", "the project's policy, the nearest from the working directory upwards; it can only take away until it is trusted")
	m.item("$XDG_CONFIG_HOME/bailey/bailey.jsonc", "the user's own policy (~/.config if the variable is not set)")
	m.item("$XDG_STATE_HOME/bailey/trust.json", "which project policies are trusted (~/.local/state)")
	m.item("$XDG_STATE_HOME/bailey/audit.jsonl", "what happened in sandboxes, for bailey log")
	m.section("EXIT STATUS")
	for _, s := range statuses() {
		m.item(s[0], s[1])
	}
	return m.String()
}

func manDescription() []string {
	return []string{
		"Without any policy file the project directory can be written, system directories and tool chains can be read, " +
			"the rest of the home directory does not exist, the network is closed, and only harmless environment variables enter.",
		"The first word that is not a flag is the command, unless it is a verb; after -- it always is the command. " +
			"Nothing after it is looked at, expanded or changed.",
		"Streams that are a terminal become a terminal of the sandbox's own, with its size and settings; pipes stay pipes. " +
			"Signals are passed on. Job control works: when the command stops, bailey stops.",
		"If the machine lacks a wall that the policy needs, nothing runs, and the message says which wall, why, and what to do.",
	}
}

// roff writes a page line by line.
type roff struct{ strings.Builder }

func (m *roff) line(parts ...string) {
	for _, p := range parts {
		m.WriteString(p)
	}
	m.WriteByte('\n')
}

func (m *roff) section(name string) { m.line(".SH ", name) }

func (m *roff) item(term, text string) {
	m.line(".TP")
	m.line(`\fB`, escapeRoff(term), `\fR`)
	m.text(text)
}

func (m *roff) text(s string) { m.line(escapeRoff(s)) }

// escapeRoff keeps what people copy from the page plain ASCII, and a leading
// dot from being a request.
func escapeRoff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "…", "...", "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
