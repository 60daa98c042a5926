package native

import "testing"

func TestTwoIDsChangePlaces(t *testing.T) {
	for _, c := range []struct {
		identity string
		a, b     int
		want     string
	}{
		{"0 0 4294967295\n", 0, 0, "0 0 4294967295\n"},
		{"0 0 4294967295\n", 0, 1000, "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294\n"},
		{"0 0 4294967295\n", 0, 1, "0 1 1\n1 0 1\n2 2 4294967293\n"},
		{"0 0 10\n100 100 10\n", 0, 109, "0 109 1\n1 1 9\n100 100 9\n109 0 1\n"},
	} {
		if got := exchanged(c.identity, c.a, c.b); got != c.want {
			t.Errorf("%q, %d and %d: got %q, want %q", c.identity, c.a, c.b, got, c.want)
		}
	}
}
