package event

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// samples has an event of each kind, and every key at least once.
func samples() []Event {
	at := time.Date(2026, 1, 2, 15, 4, 5, 120000000, time.UTC)
	sample := func(kind Kind, fill func(*Event)) Event {
		e := Event{Version: Version, Time: at, Kind: kind, Sandbox: "b7", Pid: 4711, Process: "node"}
		fill(&e)
		return e
	}
	return []Event{
		sample(Deny, func(e *Event) {
			e.Op, e.Path, e.Rule = OpCreate, "/work/.env", "filesystem.denyWrite **/.env"
			e.Where, e.Fix, e.Count = "/work/bailey.jsonc:4:7", "--allow-write .env", 3
		}),
		sample(Allow, func(e *Event) { e.Op, e.Host, e.Port = OpConnect, "example.org", 443 }),
		sample(Exec, func(e *Event) { e.Path, e.Argv = "/usr/bin/git", []string{"git", "", "a b"} }),
		sample(Exit, func(e *Event) { e.Status = new(0) }),
		sample(Exit, func(e *Event) { e.Signal = "SIGKILL" }),
		sample(Limit, func(e *Event) { e.Limit = "memory" }),
		sample(Connection, func(e *Event) {
			e.Host, e.Address, e.Port, e.Method, e.URLPath = "example.org", "2001:db8::1", 443, "GET", "/x?y"
			e.BytesIn, e.BytesOut, e.Duration = 5<<30, 20, 1500*time.Millisecond
		}),
		sample(Exec, func(e *Event) { e.Argv, e.Truncated = []string{"sh"}, true }),
		sample(Deny, func(e *Event) { e.Op, e.Path = OpMkdir, "/work/\xff\xfe" }),
	}
}

func TestLineIsReadBackAsItWas(t *testing.T) {
	for _, path := range []string{
		"/work/a", "/work/\xff", "\xc3\x28", "\xed\xa0\x80", "a\x00b", "a\nb", "\ufffd", "\ufffd\xff", "<&>", `\xff`, "\u2028", "\u009b1m", "\U000e0001",
	} {
		e := Event{Version: Version, Time: time.Unix(1, 2).UTC(), Kind: Exec, Process: path, Path: path, Argv: []string{"x", path, ""}, Rule: path}
		line := e.AppendLine(nil)
		got, err := Decode(line)
		if err != nil || !reflect.DeepEqual(*got, e) {
			t.Errorf("%q: got %+v (%v), want %+v\nline: %s", path, got, err, e, line)
		}
	}
	for _, e := range samples() {
		line := e.AppendLine(nil)
		if got, err := Decode(line); err != nil || !reflect.DeepEqual(*got, e) {
			t.Errorf("got %+v (%v), want %+v\nline: %s", got, err, e, line)
		}
	}
}

func TestLineIsPrintableAndOne(t *testing.T) {
	e := Event{Kind: Deny, Path: "/\x1b[2J\r\n\u009b\x7f\u202e\U000e0001\xff"}
	line := string(e.AppendLine(nil))
	if !strings.HasSuffix(line, "\n") || !plain.IsText(strings.TrimSuffix(line, "\n")) || strings.Contains(line, "\t") {
		t.Errorf("got %q", line)
	}
	if !strings.HasPrefix(line, lineStart) || strings.Count(line, lineStart) != 1 {
		t.Errorf("a line begins once with %s: %s", lineStart, line)
	}
}

func TestTimeHasAFixedWidthInUTC(t *testing.T) {
	at := time.Date(2026, 1, 2, 17, 4, 5, 0, time.FixedZone("x", 2*3600))
	line := string((&Event{Kind: Deny, Time: at}).AppendLine(nil))
	if want := `{"version":1,"time":"2026-01-02T15:04:05.000000000Z","kind":"deny"}` + "\n"; line != want {
		t.Errorf("got %s, want %s", line, want)
	}
}

func TestMarshalledEventsAreTheSameObjects(t *testing.T) {
	all := samples()
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var got []Event
	if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("got %+v (%v), want %+v", got, err, all)
	}
}

func TestUnknownKeysAreIgnoredAndUnknownVersionsRefused(t *testing.T) {
	const good = `{"version":1,"time":"2026-01-02T15:04:05Z","kind":"deny","path":"/a"`
	for line, want := range map[string]string{
		good + `}`:                                      "",
		good + `,"later":{"x":[1]}}`:                    "",
		good + `,"raw":{"later":"/w=="}}`:               "",
		`{"version":2,"kind":"deny"}`:                   "version 2",
		`{"time":"2026-01-02T15:04:05Z"}`:               "no version",
		strings.Replace(good, "5Z", "5+01:00", 1) + `}`: "no time",
		`{"version":1,"kind":"deny"}`:                   "no time",
		strings.Replace(good, "deny", "", 1) + `}`:      "no kind",
		good:                             "unexpected end",
		good + `}{`:                      "invalid character",
		`[]`:                             "cannot unmarshal",
		`null`:                           "no version",
		good + `,"raw":{"path":"/w=="}}`: "path differ",
		good + `,"raw":{"path":"?"}}`:    "illegal base64",
	} {
		e, err := Decode([]byte(line))
		if want == "" {
			if err != nil || e.Path != "/a" {
				t.Errorf("%s: got %+v, %v", line, e, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
}

func TestLargeEventsAreCutAndMarked(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for name, e := range map[string]Event{
		"arguments":      {Kind: Exec, Path: "/bin/sh", Argv: []string{"sh", "-c", long, "last"}},
		"odd arguments":  {Kind: Exec, Path: "/bin/sh", Argv: []string{"sh", "-c", "x" + long}},
		"many arguments": {Kind: Exec, Path: "/bin/sh", Argv: slices.Repeat([]string{"x"}, 1<<20)},
		"empty ones":     {Kind: Exec, Path: "/bin/sh", Argv: make([]string, 1<<20)},
		"bytes":          {Kind: Exec, Path: "/bin/sh", Argv: []string{"sh", strings.Repeat("\xff", 1<<20)}},
		"escapes":        {Kind: Exec, Path: "/bin/sh", Argv: []string{"sh", strings.Repeat("\u009b", 1<<20)}},
		"a rule":         {Kind: Deny, Path: "/bin/sh", Rule: long},
	} {
		line := e.AppendLine(nil)
		if len(line) > maxLine+1 {
			t.Errorf("%s: got %d bytes, want at most %d", name, len(line), maxLine)
		}
		got, err := Decode(line)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !got.Truncated || got.Path != "/bin/sh" {
			t.Errorf("%s: got path %q, truncated %v", name, got.Path, got.Truncated)
		}
		for i, word := range got.Argv {
			if !strings.HasPrefix(e.Argv[i], word) || utf8.ValidString(e.Argv[i]) != utf8.ValidString(word) {
				t.Errorf("%s: argv[%d] is not the beginning of what it was", name, i)
			}
		}
	}
}

// A path has at most 4,096 bytes, and none of them may get lost, in any form.
func TestLongestPathIsRecordedWhole(t *testing.T) {
	for _, unit := range []string{"x", "/", `"`, "\xff", "é", "\u009b", "\x01", "\U000e0001"} {
		path := strings.Repeat(unit, 4096/len(unit))
		e := Event{Kind: Deny, Op: OpCreate, Path: path}
		if got, err := Decode(e.AppendLine(nil)); err != nil || got.Path != path || got.Truncated {
			t.Errorf("%q: %v, truncated %v", unit, err, got.Truncated)
		}
		for _, s := range e.texts {
			*s = path
		}
		e.Argv = slices.Repeat([]string{path}, 100)
		if got, err := Decode(e.AppendLine(nil)); err != nil || got.Path != path || !got.Truncated {
			t.Errorf("%q, among much else: %v, truncated %v", unit, err, got.Truncated)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, e := range samples() {
		f.Add(e.AppendLine(nil))
	}
	f.Add([]byte(lineStart + "1,\"time\"" + lineStart + "\n\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var file logFile
		read := 0
		each := func(l Line) {
			read += len(l.Raw)
			if (l.Event == nil) == (l.Err == nil) {
				t.Fatalf("%q: event %v, error %v", l.Raw, l.Event, l.Err)
			}
			if l.Event == nil {
				return
			}
			checkText(t, l.Event.Text())
			for _, s := range Summary([]Event{*l.Event}) {
				checkText(t, s)
			}
			line := l.Event.AppendLine(nil)
			again, err := Decode(line)
			if err != nil {
				t.Fatalf("%q: %v", l.Raw, err)
			}
			if got := again.AppendLine(nil); !bytes.Equal(got, line) {
				t.Fatalf("%q: got %s, and then %s", l.Raw, line, got)
			}
		}
		half := len(data) / 2
		file.feed(data[:half], each)
		file.feed(data[half:], each)
		file.finish(each)
		if want := len(data) - bytes.Count(data, []byte("\n")); read != want {
			t.Fatalf("got lines of %d bytes in all, want %d", read, want)
		}
	})
}

func FuzzEncode(f *testing.F) {
	f.Add("/work/a", "node", "rule", 3)
	f.Add("\xff\n\x1b", "\u009b", "\\", 0)
	f.Fuzz(func(t *testing.T, path, word, rule string, n int) {
		e := Event{
			Version: Version, Time: time.Unix(0, int64(n)).UTC(), Kind: Deny, Path: path, Process: word, Rule: rule,
			Argv: slices.Repeat([]string{word}, 1+max(0, n)%9), Pid: n,
		}
		line := e.AppendLine(nil)
		checkText(t, strings.TrimSuffix(string(line), "\n"))
		got, err := Decode(line)
		if err != nil || !got.Truncated && !reflect.DeepEqual(*got, e) {
			t.Fatalf("got %+v (%v), want %+v\nline: %s", got, err, e, line)
		}
	})
}

func checkText(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		t.Fatalf("%q could drive a terminal", s)
	}
}
