//go:build unix

package ready

import (
	"os"
	"testing"
)

func TestWaitEndsWithSomethingToReadOrNothingEver(t *testing.T) {
	for _, test := range []struct {
		name string
		then func(f, r, w *os.File)
		want bool
	}{
		{"data", func(_, _, w *os.File) { _, _ = w.WriteString("x") }, true},
		{"the other end closed", func(_, _, w *os.File) { w.Close() }, false},
		{"closed", func(f, _, _ *os.File) { f.Close() }, false},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		f, err := Copy(int(r.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan bool)
		go func() { got <- Wait(f) }()
		test.then(f, r, w)
		if found := <-got; found != test.want {
			t.Errorf("%s: got %v", test.name, found)
		}
		f.Close()
		r.Close()
		w.Close()
	}
}
