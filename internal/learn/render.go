package learn

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/pattern"
	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Names says how paths are written in a policy.
type Names struct{ Home, Project string }

// Of returns a path as a person would write it in a policy: from ~/, relative to
// the project, or absolute.
func (n Names) Of(p string) string { return pattern.Entry(n.of(p)) }

func (n Names) of(p string) string {
	if rest, ok := below(n.Project, p); ok {
		if strings.IndexAny(rest, "!~@") == 0 {
			return "./" + rest // these mean something else at the start
		}
		return rest
	}
	if n.Project != "" && p == n.Project {
		return "."
	}
	if rest, ok := below(n.Home, p); ok {
		return "~/" + rest
	}
	return p
}

// Path is the way back from Of, for an entry that is no pattern.
func (n Names) Path(entry string) string {
	if p, ok := pattern.Plain(entry); ok {
		entry = p
	}
	switch rest, inHome := strings.CutPrefix(entry, "~/"); {
	case inHome:
		return path.Join(n.Home, rest)
	case path.IsAbs(entry):
		return path.Clean(entry)
	}
	return path.Join(n.Project, entry)
}

// IsEmpty says whether nothing is proposed. There may still be remarks.
func (p *Proposal) IsEmpty() bool {
	return len(p.Read)+len(p.Write)+len(p.Private)+len(p.Hide)+len(p.Hosts) == 0
}

// list is one list of the policy that a proposal adds to.
type list struct {
	section, key string
	entries      []entry
}

type entry struct{ text, comment string } // the text is JSON

// files are the grants by the keys of "filesystem".
func (p *Proposal) files() []fileList {
	return []fileList{{"allowRead", p.Read}, {"allowWrite", p.Write}, {"privateWrite", p.Private}, {"denyRead", p.Hide}}
}

type fileList struct {
	key    string
	grants []Grant
}

// lists are those that are not empty, in the order of their sections.
func (p *Proposal) lists(n Names) []list {
	var out []list
	add := func(section, key string, e entry) {
		at := slices.IndexFunc(out, func(l list) bool { return l.section == section && l.key == key })
		if at < 0 {
			at = len(out)
			out = append(out, list{section: section, key: key})
		}
		out[at].entries = append(out[at].entries, e)
	}
	for _, l := range p.files() {
		for i := range l.grants {
			add("filesystem", l.key, entry{quote(n.Of(l.grants[i].Path)), l.grants[i].comment()})
		}
	}
	for i := range p.Hosts {
		section, key := p.Hosts[i].place()
		add(section, key, entry{p.Hosts[i].text(), programList(p.Hosts[i].For)})
	}
	slices.SortStableFunc(out, func(x, y list) int { return strings.Compare(x.section, y.section) })
	return out
}

// Render writes a proposal as a policy file with comments, which extends the
// policy that was judged by. Head is a line about where it comes from.
func (p *Proposal) Render(head, extends string, n Names) []byte {
	var b strings.Builder
	b.WriteString("// " + plain.Text(head) + "\n{\n  \"extends\": " + quote(extends))
	lists, remarks := p.lists(n), p.Remarks(n)
	if len(lists) == 0 {
		b.WriteString("\n")
		writeRemarks(&b, "  ", remarks)
		b.WriteString("}\n")
		return []byte(b.String())
	}
	b.WriteString(",\n")
	for i, l := range lists {
		if i == 0 || lists[i-1].section != l.section {
			b.WriteString("  " + quote(l.section) + ": {\n")
		}
		b.WriteString("    " + quote(l.key) + ": [\n")
		for _, e := range l.entries {
			b.WriteString("      " + e.text + ",")
			if e.comment != "" {
				b.WriteString(" // " + e.comment)
			}
			b.WriteByte('\n')
		}
		b.WriteString("    ],\n")
		if i+1 < len(lists) && lists[i+1].section == l.section {
			continue
		}
		if i+1 == len(lists) {
			writeRemarks(&b, "    ", remarks)
		}
		b.WriteString("  },\n")
	}
	b.WriteString("}\n")
	return []byte(b.String())
}

func writeRemarks(b *strings.Builder, indent string, remarks []string) {
	for _, r := range remarks {
		b.WriteString(indent + "// " + r + "\n")
	}
}

// comment says who needs a grant, and what it is.
func (g *Grant) comment() string {
	who := programList(g.For)
	switch {
	case g.Note == "":
		return who
	case who == "":
		return plain.Text(g.Note)
	}
	return who + ", from " + plain.Text(g.Note)
}

// maxRemarks is how many remarks of a kind are spelled out.
const maxRemarks = 5

// Remarks are what is left out of a proposal, a line each.
func (p *Proposal) Remarks(n Names) []string {
	var lines []string
	shown := map[Why]int{}
	for i := range p.Left {
		r := &p.Left[i]
		if shown[r.Why]++; shown[r.Why] <= maxRemarks {
			lines = append(lines, r.text(n))
		}
		last := i+1 == len(p.Left) || p.Left[i+1].Why != r.Why
		if rest := shown[r.Why] - maxRemarks; last && rest > 0 {
			lines = append(lines, "and "+strconv.Itoa(rest)+" more such")
		}
	}
	return lines
}

// Who names the programs that a remark is about.
func (r *Remark) Who() string {
	if who := programList(r.For); who != "" {
		return who
	}
	return "the command"
}

func (r *Remark) text(n Names) string {
	name := plain.Text(r.Path)
	if r.Why != Unreached {
		name = plain.Text(n.Of(r.Path))
	}
	if who := programList(r.For); who != "" {
		name += " (" + who + ")"
	}
	switch r.Why {
	case Secret:
		return "looks like a secret, not granted: " + name
	case Denied:
		return "denied by " + plain.Text(r.Rule) + ": " + name
	case Wide:
		return "would take a whole directory that holds far more, not granted: " + name
	case Cache:
		return "a cache, not granted (if it is needed: privateWrite): " + name
	case Vain:
		return "your own user may not either, not granted: " + name
	case Unreached:
		return "a host, not granted (" + plain.Text(r.Rule) + "): " + name
	}
	return "only looked for, not granted: " + name
}

// programList names a few programs.
func programList(names []string) string {
	const most = 3
	var shown []string
	for i, name := range names {
		if i == most {
			shown = append(shown, "…")
			break
		}
		shown = append(shown, plain.Text(name))
	}
	return strings.Join(shown, ", ")
}

// quote returns a JSON string.
func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string is always encoded
	return strings.TrimSuffix(b.String(), "\n")
}
