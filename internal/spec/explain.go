package spec

import (
	"io"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Explain writes a Spec for people: what the command sees, grouped by what it
// can do with it. Values of variables are left out.
func Explain(w io.Writer, s *Spec) error {
	var b strings.Builder
	section := func(title string, rows [][2]string) {
		if len(rows) == 0 {
			return
		}
		b.WriteString(title + "\n")
		width := 0
		for _, r := range rows {
			if r[1] != "" {
				width = max(width, len(r[0]))
			}
		}
		for _, r := range rows {
			b.WriteString("  " + r[0])
			if r[1] != "" {
				b.WriteString(strings.Repeat(" ", width-len(r[0])+2) + r[1])
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	section("command", commandRows(s))
	written := func(m *Mount) bool { return m.Kind == Bind && m.Write && m.Why != "pin" }
	section("can be written", mountRows(s, func(m *Mount) bool { return written(m) && !s.Overlay.Covers(m.Source) }))
	section("can be written in an overlay, and stays as it is until that is applied", mountRows(s, func(m *Mount) bool { return written(m) && s.Overlay.Covers(m.Source) }))
	section("can be written, and is forgotten afterwards", mountRows(s, func(m *Mount) bool { return m.access() == AccessPrivate }))
	section("can be read", mountRows(s, func(m *Mount) bool { return m.Kind == Bind && !m.Write && !isProtection(m) }))
	section("is protected from writing", mountRows(s, isProtection))
	section("is hidden", mountRows(s, func(m *Mount) bool { return m.Kind == Hide || m.Way }))
	section("has permissions by path", permissionRows(s.Rules))
	section("network", networkRows(s))
	section("environment", envRows(s))
	section("limits", limitRows(s))
	rows := make([][2]string, len(s.Warnings))
	for i, text := range s.Warnings {
		rows[i][0] = text
	}
	section("warnings", rows)
	_, err := io.WriteString(w, strings.TrimSuffix(b.String(), "\n"))
	return err
}

func commandRows(s *Spec) [][2]string {
	quoted := make([]string, len(s.Argv))
	for i, a := range s.Argv {
		quoted[i] = plain.Text(a)
		if a == "" || strings.ContainsAny(a, " \t'\"") {
			quoted[i] = strconv.Quote(a)
		}
	}
	uid, gid := s.Identity.Inside()
	user := "user " + strconv.Itoa(uid) + ", group " + strconv.Itoa(gid)
	rows := [][2]string{{"run", strings.Join(quoted, " ")}, {"in", plain.Text(s.Dir)}, {"as", user}}
	if i := s.Image; i != nil {
		rows = append(rows, [2]string{"image", plain.Text(strings.TrimSpace(i.Name + " " + i.ID))}, [2]string{"at", plain.Text(i.Dir)})
	}
	return rows
}

func mountRows(s *Spec, want func(*Mount) bool) [][2]string {
	var rows [][2]string
	for i := range s.Mounts {
		if m := &s.Mounts[i]; want(m) {
			rows = append(rows, [2]string{plain.Text(m.Target), plain.Text(m.Why)})
		}
	}
	return rows
}

func isProtection(m *Mount) bool {
	return m.Kind == Bind && !m.Write && (strings.HasPrefix(m.Why, "protected ") || strings.HasPrefix(m.Why, "filesystem.denyWrite "))
}

func networkRows(s *Spec) [][2]string {
	rows := [][2]string{{"closed", ""}}
	switch s.Network {
	case NetworkHost:
		rows = [][2]string{{"the host's, without any limit", ""}}
	case NetworkGate:
		rows = gateRows(s.Gate)
	}
	for _, e := range s.Expose {
		at := netip.AddrPortFrom(netip.MustParseAddr(e.Address), e.Port).String()
		rows = append(rows, [2]string{"port " + strconv.Itoa(int(e.Inside)) + " can be reached from outside", "network.exposePorts " + at})
	}
	return rows
}

// gateRows are the rules in the order in which they decide.
func gateRows(g *Gate) [][2]string {
	var rows [][2]string
	for i := range g.Config.Rules {
		r := &g.Config.Rules[i]
		subject := string(r.Action) + " " + plain.Text(r.Host)
		for _, p := range r.Ports {
			subject += " " + strconv.Itoa(int(p.From))
			if p.To != p.From {
				subject += "-" + strconv.Itoa(int(p.To))
			}
		}
		for _, words := range [][]string{r.Schemes, r.Methods, r.Paths} {
			subject += plain.Text(strings.Join(append([]string{""}, words...), " "))
		}
		rows = append(rows, [2]string{subject, plain.Text(r.Name)})
	}
	for i := range g.Config.Ranges {
		rows = append(rows, [2]string{"allow addresses " + plain.Text(g.Config.Ranges[i].CIDR), "network.allowedCIDRs"})
	}
	for _, text := range g.Unknown {
		group, why, _ := strings.Cut(text, ": ")
		rows = append(rows, [2]string{"nothing for " + plain.Text(group), plain.Text(why)})
	}
	rest := string(g.Config.Default) + " everything else"
	switch {
	case g.Transparent:
		return append(rows, [2]string{rest, "connections of every program are captured"})
	case g.Socket != "":
		return append(rows, [2]string{rest, "only programs that use the socket " + g.Socket + " get out"})
	}
	return append(rows, [2]string{rest, "only programs that use the proxy get out"})
}

func envRows(s *Spec) [][2]string {
	names := make([]string, len(s.Env))
	for i, v := range s.Env {
		name, _, _ := strings.Cut(v, "=")
		names[i] = plain.Text(name)
	}
	rows := [][2]string{{"enters", strings.Join(names, " ")}}
	if len(s.DroppedEnv) > 0 {
		rows = append(rows, [2]string{"kept out", plain.Text(strings.Join(s.DroppedEnv, " ")) + " (looks like a secret)"})
	}
	if len(s.OmittedEnv) > 0 {
		rows = append(rows, [2]string{"not listed", plain.Text(strings.Join(s.OmittedEnv, " ")) + " (--env NAME lets one in)"})
	}
	return rows
}

func limitRows(s *Spec) [][2]string {
	var rows [][2]string
	for _, r := range s.Rlimits {
		if r.Name != "core" {
			rows = append(rows, [2]string{r.Name, strconv.FormatUint(r.Value, 10)})
		}
	}
	rows = append(rows, s.Limits.rows()...)
	if s.TimeoutMillis > 0 {
		rows = append(rows, [2]string{"timeout", strconv.FormatFloat(float64(s.TimeoutMillis)/1000, 'f', -1, 64) + " s"})
	}
	return rows
}
