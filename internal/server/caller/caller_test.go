package caller

import (
	"context"
	"testing"
)

func TestCallerOfNoTransportMayNothing(t *testing.T) {
	c := From(context.Background())
	for _, s := range Scopes() {
		if c.May(s) {
			t.Errorf("nobody may %s", s)
		}
	}
	if c.Sees("ann") {
		t.Error("nobody sees things of ann")
	}
}

func TestOnlyAnAdministratorActsForOthers(t *testing.T) {
	ann := Caller{Owner: "ann", Scopes: []Scope{Read, Write, Exec}}
	for _, test := range []struct {
		caller Caller
		owner  string
		want   string
	}{
		{ann, "", "ann"},
		{ann, "ann", "ann"},
		{ann, "bob", ""},
		{Local("local"), "bob", "bob"},
	} {
		got, err := test.caller.ActFor(test.owner)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s acting for %q: %q, %v; want %q", test.caller.Owner, test.owner, got, err, test.want)
		}
	}
	if ann.Sees("bob") || !Local("local").Sees("bob") {
		t.Error("another's things exist for administrators alone")
	}
}
