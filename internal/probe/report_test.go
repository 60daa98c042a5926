package probe

import (
	"encoding/json"
	"strings"
	"testing"
)

var sample = Report{
	{Attack: "first", Result: Stopped, Wall: "mount", How: "read-only"},
	{Attack: "second", Result: Absent, How: "there is none"},
	{Attack: "third", Result: Granted, How: "granted"},
	{Attack: "fourth", Result: Through, How: "worked"},
	{Attack: "fifth", Result: Unclear, How: "the control failed"},
}

func TestTheWorstStandsFirst(t *testing.T) {
	want := `GOT THROUGH     fourth         worked
cannot tell     fifth          the control failed
granted         third          granted
stopped         first   mount  read-only
not applicable  second         there is none
1 of 3 attacks were stopped; the policy grants 1 more; 1 not applicable here
`
	if got := sample.Text(false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestColoursAreOnlyWhereAsked(t *testing.T) {
	if got := sample.Text(false); strings.Contains(got, "\x1b") {
		t.Errorf("escape sequences in %q", got)
	}
	if got, want := sample.Text(true), "\x1b[1;31mGOT THROUGH   \x1b[0m"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to start with %q", got, want)
	}
}

func TestOnlyStoppedGrantedAndAbsentHold(t *testing.T) {
	for result, want := range map[Result]bool{Stopped: true, Granted: true, Absent: true, Through: false, Unclear: false} {
		if got := (Report{{Result: Stopped}, {Result: result}}).Held(); got != want {
			t.Errorf("%s: held is %v, want %v", result, got, want)
		}
	}
}

func TestJSONIsOneObjectALine(t *testing.T) {
	text, err := sample.JSON()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != len(sample) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(sample), text)
	}
	for i, line := range lines {
		var got Finding
		if err := json.Unmarshal([]byte(line), &got); err != nil || got != sample[i] {
			t.Errorf("line %d: got %+v, %v; want %+v", i, got, err, sample[i])
		}
	}
}
