package event

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSummaryNamesWhatWasDeniedAndTheFix(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{
			Event{Op: OpCreate, Path: ".envrc", Rule: "protected name", Fix: "--allow-write .envrc"},
			"denied: create .envrc (protected name); to allow: --allow-write .envrc",
		},
		{
			Event{Op: OpOpen, Path: "/a b", Rule: "filesystem.denyRead /a b", Count: 12},
			"denied: open '/a b' (filesystem.denyRead /a b), 12 times",
		},
		{Event{Op: OpConnect, Host: "example.org", Port: 443, Address: "192.0.2.1"}, "denied: connect example.org:443"},
		{Event{Op: OpConnect, Address: "2001:db8::1", Port: 80, Method: "POST"}, "denied: connect '[2001:db8::1]:80' POST"},
		{Event{Op: OpExec, Path: "/usr/bin/curl", Argv: []string{"curl", "x"}, Rule: "command.deny curl"}, "denied: exec /usr/bin/curl (command.deny curl)"},
	} {
		if got := Summary([]Event{c.e}); !slices.Equal(got, []string{c.want}) {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestSummaryIsShort(t *testing.T) {
	var denials []Event
	for i := range 25 {
		denials = append(denials, Event{Op: OpOpen, Path: fmt.Sprint("/", i)})
	}
	got := Summary(denials)
	if len(got) != 11 || got[9] != "denied: open /9" || got[10] != "and 15 more; see bailey log" {
		t.Errorf("got %q", got)
	}
	if got := Summary(denials[:10]); len(got) != 10 || got[9] != "denied: open /9" {
		t.Errorf("got %q", got)
	}
	if got := Summary(nil); got != nil {
		t.Errorf("got %q for nothing", got)
	}
	long := strings.Repeat("é", 2000)
	line := Summary([]Event{{Op: OpOpen, Path: "/a/" + long + "/z", Rule: long, Fix: "--allow-read /a/" + long + "/z"}})[0]
	if len(line) > 400 || !strings.Contains(line, "/a/é") || !strings.Contains(line, "é/z") || strings.Contains(line, "to allow") {
		t.Errorf("got %q", line)
	}
	checkText(t, line)
}

func TestHostileNamesCannotPassForTheTextAround(t *testing.T) {
	for _, name := range []string{
		"", "a b", "x (rule); to allow: -", "a\nbailey: forged", "\x1b[2J", "\x9b2J", "\u009b2J", "\u202egnp.exe", "\U000e0001", "\u2028",
	} {
		e := Event{
			Kind: Deny, Op: Op(name), Path: name, Process: name, Rule: name, Where: name, Fix: name, Sandbox: name,
			Argv: []string{"x", name}, Method: name, URLPath: name, Limit: name, Signal: name, Truncated: true,
		}
		for _, kind := range append(Kinds(), Kind(name)) {
			e.Kind = kind
			checkText(t, e.Text())
			checkText(t, Summary([]Event{e})[0])
		}
	}
}

func TestTextShowsWhatEachKindIsAbout(t *testing.T) {
	want := []string{
		"b7 node[4711] create /work/.env (filesystem.denyWrite **/.env at /work/bailey.jsonc:4:7), 3 times; to allow: --allow-write .env",
		"b7 node[4711] connect example.org:443",
		"b7 node[4711] exec /usr/bin/git '' 'a b'",
		"b7 node[4711] ended with status 0",
		"b7 node[4711] ended by SIGKILL",
		"b7 node[4711] met the limit memory",
		"b7 node[4711] GET example.org:443 '/x?y' 5368709120 bytes in, 20 out, 1.5s",
		"b7 node[4711] exec; too long to record whole",
		`b7 node[4711] mkdir $'/work/\xff\xfe'`,
	}
	for i, e := range samples() {
		if got := e.Text(); got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
	e := Event{Kind: Exec, Argv: slices.Repeat([]string{"word"}, 1000)}
	if got := e.Text(); len(got) > 400 || !strings.HasSuffix(got, " …") {
		t.Errorf("got %s", got)
	}
}
