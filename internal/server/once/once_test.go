package once

import (
	"context"
	"testing"
)

func TestNamesAreThoseOfTheRequest(t *testing.T) {
	names := func(seed string) (list [4]string) {
		ctx := With(context.Background(), []byte(seed), true)
		return [4]string{First(ctx, "a"), Name(ctx, "a"), Name(ctx, "a"), Name(ctx, "b")}
	}
	one := names("one")
	if one != names("one") || one[0] != one[1] {
		t.Errorf("%q and %q", one, names("one"))
	}
	seen := map[string]bool{}
	two := names("two")
	for _, n := range append(one[1:], two[1:]...) {
		if seen[n] {
			t.Errorf("%s is there twice", n)
		}
		seen[n] = true
	}
}

func TestRequestWithoutASeedHasNoNames(t *testing.T) {
	ctx := context.Background()
	if Name(ctx, "a") != "" || First(ctx, "a") != "" || Again(ctx) {
		t.Error("it has")
	}
}
