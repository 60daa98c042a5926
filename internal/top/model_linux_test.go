package top

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// boxes are sandboxes by their names, numbered by the first letters.
func boxes(names ...string) []keeper.Box {
	var list []keeper.Box
	for _, name := range names {
		list = append(list, keeper.Box{Name: name, Pid: int(name[0]), Age: time.Minute, Dir: "/" + name})
	}
	return list
}

// inside has one denial by the gate, one by a rule, one of a file, and a
// connection, the last of them last.
func inside() *keeper.Inside {
	file := event.Event{Kind: event.Deny, Op: event.OpCreate, Path: "/a/.envrc", Rule: "protected name", Fix: "--allow-write /a/.envrc"}
	rule := event.Event{Kind: event.Deny, Op: event.OpConnect, Host: "no.example", Port: 80, Rule: "network.deniedDomains no.example", Fix: "take it back"}
	host := event.Event{Kind: event.Deny, Op: event.OpConnect, Host: "new.example", Port: 443, Rule: "network.defaultAction deny", Fix: `network.allowedDomains: "new.example"`}
	done := event.Event{Kind: event.Connection, Host: "good.example", Port: 443}
	in := &keeper.Inside{Spec: spec.Spec{Network: spec.NetworkNone}, Processes: []keeper.Process{{Pid: 7, Argv: []string{"sleep", "\x1b[2J"}}}}
	for i, e := range []event.Event{file, rule, host, done} {
		in.Events = append(in.Events, event.Numbered{Number: i + 1, Event: e})
	}
	return in
}

func text(m *model, width, height int) string {
	var b strings.Builder
	for _, l := range m.view(width, height) {
		b.WriteString(l.text + "\n")
	}
	return b.String()
}

func TestKeysDoWhatTheyAreFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		keys   string
		action action // the last
		want   string // on the screen then
	}{
		{"nothing", "", action{}, "> a"},
		{"down", "j", action{kind: look}, "> b"},
		{"not below the last", "jjjjj", action{kind: look}, "> c"},
		{"not above the first", "jkkk", action{kind: look}, "> a"},
		{"the last", "G", action{kind: look}, "> c"},
		{"the first again", "Gg", action{kind: look}, "> a"},
		{"inspect", "i", action{}, "a in /a"},
		{"inspect by enter", "\r", action{}, "a in /a"},
		{"and back", "i\x1b", action{}, "> a"},
		{"help", "?", action{}, "any key goes back"},
		{"help and back", "?q", action{}, "> a"},
		{"quit", "q", action{kind: quit}, ""},
		{"quit by Ctrl-C from a question", "s\x03", action{kind: quit}, ""},
		{"stop asks", "s", action{}, "stop a and everything in it? y/n"},
		{"no", "sn", action{}, "nothing was done"},
		{"enter is no yes", "s\r", action{}, "nothing was done"},
		{"yes", "sy", action{kind: stop, name: "a", pid: 'a'}, ""},
		{"allow the last denial", "a", action{}, "let a reach new.example:443? y/n"},
		{"allowed", "ay", action{kind: allow, name: "a", pid: 'a', number: 3, what: "new.example:443"}, ""},
		{"what is no denial", "ia", action{}, "nothing was denied here"},
		{"the selected denial", "ijay", action{kind: allow, name: "a", pid: 'a', number: 3, what: "new.example:443"}, ""},
		{"what a rule denies", "ijja", action{}, "to allow: take it back; it needs a new sandbox: bailey box stop a"},
		{"what is no connection", "iGa", action{}, "to allow: --allow-write /a/.envrc; it needs a new sandbox: bailey box stop a"},
		{"an unknown key", "x", action{}, "> a"},
		{"suspend", "\x1a", action{kind: suspend}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m model
			m.take(news{boxes: boxes("a", "b", "c")})
			m.take(news{boxes: boxes("a", "b", "c"), pid: 'a', inside: inside()})
			var got action
			for _, k := range c.keys {
				if k == 0x1b {
					k = rune(keyEscape)
				}
				got = m.press(key(k))
			}
			if got != c.action {
				t.Errorf("got %+v, want %+v", got, c.action)
			}
			if screen := text(&m, 120, 40); !strings.Contains(screen, c.want) {
				t.Errorf("the screen has no %q:\n%s", c.want, screen)
			}
		})
	}
}

func TestAnEndedSandboxLeavesAnotherSelected(t *testing.T) {
	for _, c := range []struct {
		name, keys string
		left       []keeper.Box
		want       string
	}{
		{"the next", "j", boxes("a", "c"), "> c"},
		{"the one before", "G", boxes("a", "b"), "> b"},
		{"none", "", nil, "none runs"},
		{"another", "j", boxes("b", "c"), "> b"},
		{"the one inspected", "i", boxes("b", "c"), "> b"},
		{"the one to be stopped", "s", boxes("b"), "> b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m model
			m.take(news{boxes: boxes("a", "b", "c")})
			for _, k := range c.keys {
				m.press(key(k))
			}
			m.take(news{boxes: c.left})
			screen := text(&m, 120, 40)
			if !strings.Contains(screen, c.want) || strings.Contains(screen, "y/n") {
				t.Errorf("want %q:\n%s", c.want, screen)
			}
			for _, k := range "ias" { // none of them may be about what is gone
				m.press(key(k))
				text(&m, 120, 40)
			}
		})
	}
}

// News of one sandbox that come late are not taken for those of another.
func TestNewsAreOfWhomTheyAreAbout(t *testing.T) {
	var m model
	m.take(news{boxes: boxes("a", "b")})
	m.press('j')
	m.take(news{boxes: boxes("a", "b"), pid: 'a', inside: inside()})
	m.press('a')
	if m.inside != nil || m.question != nil {
		t.Error("what a was denied would be allowed to b")
	}
}

func TestScreensFitAndHoldNothingThatDrivesATerminal(t *testing.T) {
	many := []keeper.Box{}
	for i := range 50 {
		many = append(many, keeper.Box{Name: fmt.Sprintf("box%02d", i), Pid: 100 + i, Commands: [][]string{{"echo", "\x1b[2J\t\u202e", strings.Repeat("x", 300)}}})
	}
	in := inside()
	in.Events[3].Event.Host = "\x1b]0;title\x07"
	in.Spec = spec.Spec{
		Network: spec.NetworkGate, Gate: &spec.Gate{Config: config.Config{Rules: []config.Rule{{Host: "\x9b", Action: config.Allow}}}},
		Mounts: []spec.Mount{{Kind: spec.Bind, Write: true, Target: "/a\nb"}},
	}
	for range 200 {
		in.Processes = append(in.Processes, in.Processes[0])
		in.Events = append(in.Events, event.Numbered{Number: 100 + len(in.Events), Event: in.Events[0].Event})
	}
	for _, keys := range []string{"", "jjjjjjjjjjjjjjjjjjjjjjjjjjj", "G", "i", "iG", "?", "s", "a"} {
		for _, size := range [][2]int{{1, 1}, {20, 3}, {80, 24}, {200, 60}, {80, 2}, {3, 30}} {
			var m model
			m.take(news{boxes: many})
			m.take(news{boxes: many, pid: 100, inside: in})
			for _, k := range keys {
				m.press(key(k))
			}
			lines := m.view(size[0], size[1])
			if len(lines) != size[1] {
				t.Errorf("%q: %d lines on a screen of %d", keys, len(lines), size[1])
			}
			for _, l := range lines {
				if utf8.RuneCountInString(l.text) > size[0] || strings.ContainsFunc(l.text, func(r rune) bool { return r < ' ' || r == 0x9b || r == 0x202e }) {
					t.Errorf("%q on %v: %q", keys, size, l.text)
				}
			}
			if b := m.current(); keys != "?" && keys != "i" && keys != "iG" && size == [2]int{80, 24} && !strings.Contains(text(&m, 80, 24), "> "+b.Name) {
				t.Errorf("%q: %s is not to be seen:\n%s", keys, b.Name, text(&m, 80, 24))
			}
		}
	}
}

func TestSelectedEventIsShownInFull(t *testing.T) {
	var m model
	m.take(news{boxes: boxes("a")})
	m.take(news{boxes: boxes("a"), pid: int('a'), inside: inside()})
	for _, k := range "iG" {
		m.press(key(k))
	}
	for _, size := range [][2]int{{60, 24}, {40, 20}} {
		if shown := text(&m, size[0], size[1]); !strings.Contains(strings.ReplaceAll(shown, "\n", ""), "--allow-write /a/.envrc") {
			t.Errorf("on %v:\n%s", size, shown)
		}
	}
}

func TestProcessorShareIsThatSinceTheLastLook(t *testing.T) {
	var m model
	at := func(age, cpu time.Duration) []keeper.Box {
		return []keeper.Box{{Name: "a", Pid: 1, Age: age, CPU: cpu}}
	}
	for _, c := range []struct {
		boxes []keeper.Box
		want  string
	}{
		{at(10*time.Second, time.Second), " 10% "},
		{at(12*time.Second, 2*time.Second), " 50% "},
		{at(13*time.Second, 4*time.Second), " 200% "},
		{at(14*time.Second, 3*time.Second), " 0% "}, // a process with its time is gone
	} {
		m.take(news{boxes: c.boxes})
		if screen := text(&m, 100, 10); !strings.Contains(screen, c.want) {
			t.Errorf("want %q:\n%s", c.want, screen)
		}
	}
}

func TestPolicyInShort(t *testing.T) {
	rules := []config.Rule{
		{Host: "no.example", Action: config.Deny},
		{Host: "good.example", Ports: []config.Ports{{From: 80, To: 80}, {From: 443, To: 443}}, Action: config.Allow},
		{Host: "db.example", Ports: []config.Ports{{From: 5000, To: 5010}}, Action: config.Ask},
	}
	s := &spec.Spec{
		Network: spec.NetworkGate,
		Gate:    &spec.Gate{Config: config.Config{Rules: rules, Ranges: []config.Range{{CIDR: "10.0.0.0/8"}}, Default: config.Ask}},
		Mounts: []spec.Mount{
			{Kind: spec.Bind, Target: "/usr"},
			{Kind: spec.Bind, Target: "/work", Write: true},
			{Kind: spec.Bind, Target: "/work/sub", Write: true},
			{Kind: spec.Tmpfs, Target: "/tmp"},
			{Kind: spec.Hide, Target: "/work/.env"},
		},
		Limits: &spec.Limits{Memory: 1 << 30, CPU: 1500, Pids: 20},
	}
	want := `writes   /work
private  /tmp
reads    1 paths besides, 1 hidden
network  through the gate to good.example db.example:5000-5010 (asks) 10.0.0.0/8; not to no.example; else ask
limits   memory 1.0G, cpu 150%, pids 20`
	if got := strings.Join(inShort(s), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for network, want := range map[spec.Network]string{spec.NetworkNone: "network  closed", spec.NetworkHost: "network  the host's own"} {
		if got := strings.Join(inShort(&spec.Spec{Network: network}), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s", network, got)
		}
	}
}
