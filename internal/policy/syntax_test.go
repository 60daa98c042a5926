package policy

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

func TestSyntaxMistakesAreNamed(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"comma between entries", "{\n  \"env\": {}\n  \"runtime\": \"auto\"\n}", `2:12: a comma is missing here`},
		{"comma in a list", `{"require": ["seccomp" "landlock"]}`, `1:23: a comma is missing here`},
		{"comma before a bare word", `{"require": ["seccomp" userns]}`, `1:23: a comma is missing here`},
		{"comma after a number", `{"resources": {"pids": 1 "cpu": 2}}`, `1:25: a comma is missing here`},
		{"comma before a comment", "{\"env\": {} // why\n\"runtime\": 1}", `1:11: a comma is missing here`},
		{"comma too many", "{\n  \"env\": {,}\n}", `2:11: there is nothing before this comma`},
		{"two commas", `{"require": ["seccomp",, "userns"]}`, `1:24: there is nothing before this comma`},
		{"semicolon", `{"require": ["seccomp"; "userns"]}`, `1:23: entries are separated by a comma`},

		{"quote at the end of a value", "{\"runtime\": \"auto,\n}", `1:13: this string has no quote at its end`},
		{"quote at the end of a value before CR", "{\"runtime\": \"auto\r\n}", `1:13: this string has no quote at its end`},
		{"quote at the end of a key", "{\"runtime: 1\n}", `1:2: this string has no quote at its end`},
		{"quote at the end of the file", `{"runtime": "auto}`, `1:13: this string has no quote at its end`},
		{"quote after a backslash", "{\"runtime\": \"auto\\\n\"}", `1:13: this string has no quote at its end`},
		{"quote between two", `{"require": ["seccomp, "userns"]}`, `1:25: the string has ended before this: a quote is missing, or there is one too many; a quote in a string is written \"`},
		{"quote inside", `{"env": {"set": {"A": "say "x""}}}`, `1:29: the string has ended before this`},
		{"quote at the beginning of a value", `{"runtime": auto"}`, `1:13: a string is written in double quotes: "auto"`},
		{"quote at the beginning of a key", `{runtime": "auto"}`, `1:2: a key is written in double quotes: "runtime"`},
		{"no quotes", `{"filesystem": {"allowRead": [~/x y, /usr]}}`, `1:31: a string is written in double quotes: "~/x"`},
		{"no quotes around a path", `{"filesystem": {"allowRead": [/usr]}}`, `1:31: a string is written in double quotes: "/usr"`},
		{"no quotes around a key", `{env: {}}`, `1:2: a key is written in double quotes: "env"`},
		{"a number as key", `{7: {}}`, `1:2: a key is written in double quotes: "7"`},
		{"an object as key", `{{}: 1}`, `1:2: '{' is not the beginning of a key`},
		{"single quotes", `{"runtime": 'auto'}`, `1:13: a string is written in double quotes: "auto"`},
		{"single quotes around a key", `{'runtime': "auto"}`, `1:2: a string is written in double quotes: "runtime"`},
		{"single quotes around double ones", `{"runtime": 'a "b"'}`, `1:13: a string is written in double quotes: "a \"b\""`},
		{"one single quote", `{"runtime": 'auto}`, `1:13: ' does not begin a string; " does`},
		{"back quotes", "{\"runtime\": `auto`}", `1:13: a string is written in double quotes: "auto"`},
		{"typographic quotes", `{"runtime": “auto”}`, `1:13: a string is written in double quotes: "auto"`},
		{"typographic quotes around a key", `{„runtime“: "auto"}`, `1:2: a string is written in double quotes: "runtime"`},

		{"brace", "{\n  \"env\": {\n    \"allow\": []\n  }\n", `1:1: this { is not closed`},
		{"inner brace", "{\n  \"filesystem\": {\n    \"allowRead\": [],\n\n  \"network\": {\n  }\n}\n", `2:17: this { is not closed`},
		{"bracket", `{"require": ["seccomp"`, `1:13: this [ is not closed`},
		{"brace after a key", `{"env"`, `1:1: this { is not closed`},
		{"brace after a colon", `{"env": `, `1:1: this { is not closed`},
		{"bracket after a comma", `{"require": ["seccomp",`, `1:13: this [ is not closed`},
		{"bracket before a brace", "{\"require\": [\n\"seccomp\"}", `2:10: the [ in line 1, column 13 must be closed before this }`},
		{"brace before a bracket", `{"env": {"allow": []]`, `1:21: the { in line 1, column 9 must be closed before this ]`},
		{"bracket before a key", "{\n  \"require\": [\"seccomp\",\n  \"runtime\": 1\n}", `3:12: there is a key in the list that begins in line 2, column 14; write ] before the key, or { if keys are meant`},
		{"brace too many", "{\n}\n}", `3:1: this } closes nothing: the policy has ended in line 2, column 1; one of the two is too many`},
		{"more after the end", "{\"env\": {}},\n\"runtime\": \"auto\"", `1:12: nothing may follow the policy, which has ended in line 1, column 11`},
		{"second policy", "{}\n{}", `2:1: nothing may follow the policy, which has ended in line 1, column 2`},

		{"colon", `{"env" {}}`, `1:7: a colon is missing here`},
		{"equals sign", `{"runtime" = "auto"}`, `1:12: a key and its value are separated by a colon`},
		{"value", "{\"runtime\":\n}", `2:1: the key "runtime" has no value`},
		{"value before a comma", `{"runtime": , "env": {}}`, `1:13: the key "runtime" has no value`},
		{"key alone", `{"runtime"}`, `1:11: the key "runtime" has no value; a colon and a value follow a key`},
		{"long key alone", `{"` + strings.Repeat("k", 1000) + `"}`, `1:1004: the key "` + strings.Repeat("k", 299) + `... has no value`},

		{"True", `{"allowPty": True}`, `1:14: True is written true`},
		{"FALSE", `{"allowPty": FALSE}`, `1:14: FALSE is written false`},
		{"yes", `{"allowPty": yes}`, `1:14: yes is written true`},
		{"None", `{"runtime": None}`, `1:13: None is not a value; leave the key out to say nothing`},
		{"undefined", `{"runtime": undefined}`, `1:13: undefined is not a value`},
		{"unit", `{"resources": {"timeout": 10m}}`, `1:27: a number with a unit is written in double quotes: "10m"`},
		{"underscores", `{"resources": {"pids": 1_000}}`, `1:24: 1_000 is not a number as JSON has them`},
		{"leading zero", `{"resources": {"pids": 010}}`, `1:24: 010 is not a number as JSON has them`},
		{"leading point", `{"resources": {"cpu": .5}}`, `1:23: .5 is not a number as JSON has them`},
		{"sign", `{"resources": {"cpu": +5}}`, `1:23: +5 is not a number as JSON has them`},
		{"punctuation", `{"runtime": =}`, `1:13: '=' is not the beginning of a value`},

		{"NUL", "{\"env\": {}\x00}", `1:11: control character U+0000; remove it`},
		{"NUL in a string", "{\"runtime\": \"\x00\"}", `1:14: control character U+0000 in a string`},
		{"escape in a string", "{\"runtime\": \"\x1b[2J\"}", `1:14: control character U+001B in a string`},
		{"tab in a string", "{\"runtime\": \"a\tb\"}", `1:15: a tab in a string is written \t`},
		{"form feed", "{\f}", `1:2: control character U+000C; remove it`},
		{"no-break space", "{\"env\":\u00a0{}}", `1:8: U+00A0 is not a blank that JSON knows; write a plain space`},
		{"zero-width space", "{\u200b}", `1:2: U+200B is not a blank that JSON knows; write a plain space`},
		{"line separator in a comment", "{} // a\u2028b\n", `1:8: U+2028 in a comment; remove it`},
		{"unknown escape", `{"filesystem": {"allowRead": ["C:\dir"]}}`, `1:34: \d means nothing in a string; a backslash is written \\`},
		{"unfinished escape", `{"runtime": "\u12"}`, `1:14: four hexadecimal digits follow \u in a string; a backslash is written \\`},
		{"escape at the end of the file", `{"runtime": "\u12`, `1:13: this string has no quote at its end`},

		{"hash comment", "# mine\n{}", `1:1: a comment begins with //`},
		{"hash comment inside", "{\n  # mine\n}", `2:3: a comment begins with //`},
		{"open comment", "{}\n/* mine", `2:1: this comment is not closed; write */ at its end`},
		{"empty", "", `1:1: there is no policy in it; the least one is {}`},
		{"comment alone", "// mine\n", `2:1: there is no policy in it; the least one is {}`},
		{"another language", "filesystem:\n  allowRead: [/usr]\n", `1:1: a policy begins with {`},
		{"no braces", "\"runtime\": \"auto\"\n", `1:10: nothing may follow the policy, which has ended in line 1, column 9`},

		{"byte order mark", "\ufeff{}", `1:1: the file begins with a byte order mark; save it as UTF-8 without one`},
		{"UTF-16, little end first", inUTF16("\ufeff{}", false), `1:1: the file is encoded in UTF-16; save it as UTF-8`},
		{"UTF-16, big end first", inUTF16("\ufeff{}", true), `1:1: the file is encoded in UTF-16; save it as UTF-8`},
		{"UTF-16 without a mark", inUTF16("{}", false), `1:1: the file is encoded in UTF-16; save it as UTF-8`},
		{"UTF-16 without a mark, big end first", inUTF16("{}", true), `1:1: the file is encoded in UTF-16; save it as UTF-8`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("p.jsonc", []byte(c.in))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if got, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(got, "p.jsonc:"+c.want) {
				t.Errorf("got  %s\nwant p.jsonc:%s", got, c.want)
			}
		})
	}
}

// inUTF16 encodes a text as some editors do.
func inUTF16(text string, bigEndFirst bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		pair := []byte{byte(u), byte(u >> 8)}
		if bigEndFirst {
			slices.Reverse(pair)
		}
		b = append(b, pair...)
	}
	return string(b)
}

func TestSyntaxMistakesAreShown(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct{ name, in, want string }{
		{"at the end of a line", "{\n  \"env\": {}\n  \"runtime\": \"auto\"\n}", "" +
			"  2 |   \"env\": {}\n" +
			"    |            ^"},
		{"tabs, and a line end of two characters", "{\r\n\t\"ä\": True\r\n}", "" +
			"  2 |  \"ä\": True\n" +
			"    |       ^"},
		{"in a long line", `{"` + long + `": no, "` + long + `": 1}`, "" +
			"  1 | ..." + strings.Repeat("x", 57) + "\": no, \"" + strings.Repeat("x", 35) + "...\n" +
			"    | " + strings.Repeat(" ", 63) + "^"},
		{"what would drive a terminal", "{\"\u202e\": [no \x1b[2J]}", "" +
			"  1 | {\"?\": [no ?[2J]}\n" +
			"    |        ^"},
		{"number of two digits", strings.Repeat("\n", 9) + "{no}", "" +
			"  10 | {no}\n" +
			"     |  ^"},
		{"no line outside of the braces", "machine example.com password secret", ""},
		{"no line after the end", "{}\nmachine example.com password secret", ""},
		{"no line that is not a syntax error", `{"no": 1}`, ""},
	} {
		_, err := Parse("p.jsonc", []byte(c.in))
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%s: got %v, want an *Error", c.name, err)
		}
		if e.Excerpt != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, e.Excerpt, c.want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && !strings.HasSuffix(err.Error(), "\n"+c.want) {
			t.Errorf("%s: the message does not end in the excerpt: %v", c.name, err)
		}
	}
}

func TestLastLineMayBeAComment(t *testing.T) {
	for _, in := range []string{"{} // end", "{}\n//", "{} /* end */"} {
		if _, err := Parse("p.jsonc", []byte(in)); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// FuzzSyntax holds the two readers of syntax against each other.
func FuzzSyntax(f *testing.F) {
	for _, s := range []string{
		`{"a": [1, -2.5e3, true, null, "\u00e4\n"], /* b */ "c": {},} // d`, "{\"a\" 1}", "[1_0]", "{'a': “b”}", "{a: b}", "[,]", "{\"a\": 1]",
		"[\"a\"b]", "{\n \"a\": {\n}\n", "{\"a\\d\": \"\t\"}", "/* a", "\u00a0{}", "{}}", "// a\u2029\n{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &decoder{name: "fuzz", data: data}
		if d.checkBytes() != nil {
			return
		}
		_, err := hujson.Parse(append(slices.Clip(data), '\n'))
		e := (&syntax{decoder: d}).policy()
		if err != nil && e == nil {
			t.Fatalf("no mistake is found, but: %v", err)
		}
		if err == nil && e != nil && e.Msg != "a policy begins with {" {
			t.Fatalf("a mistake is found where there is none: %v", e)
		}
		if e == nil {
			return
		}
		if lines := strings.Count(string(data), "\n") + 1; e.Line < 1 || e.Line > lines || e.Column < 1 {
			t.Fatalf("the place is %d:%d of %d lines", e.Line, e.Column, lines)
		}
		if text := e.Error(); !utf8.ValidString(text) || len(text) > 3000 || strings.Count(text, "\n") > 2 {
			t.Fatalf("bad message %q", text)
		}
	})
}
