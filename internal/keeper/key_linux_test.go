package keeper

import (
	"testing"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

func BenchmarkKey(b *testing.B) {
	m := sandbox.New(sandbox.Config{})
	if err := m.Initialize(); err != nil {
		b.Fatal(err)
	}
	s, err := m.Compile([]string{"true"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Key(s)
	}
}

func BenchmarkCompile(b *testing.B) {
	m := sandbox.New(sandbox.Config{})
	if err := m.Initialize(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Compile([]string{"true"}); err != nil {
			b.Fatal(err)
		}
	}
}
