package token

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/store"
)

func open(t *testing.T) (*Book, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(context.Background(), filepath.Join(dir, "server.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return In(s), dir
}

func TestTokenSpeaksForItsOwnerUntilItIsRevoked(t *testing.T) {
	book, _ := open(t)
	ctx := context.Background()
	text, info, err := book.Create(ctx, "ci", "ann", []caller.Scope{caller.Read, caller.Exec}, 0)
	if err != nil {
		t.Fatal(err)
	}
	c, err := book.Find(ctx, text)
	if err != nil || c.Owner != "ann" || !c.May(caller.Exec) || c.May(caller.Write) || c.Token != info.ID {
		t.Fatalf("Find = %+v, %v", c, err)
	}
	if _, err := book.Revoke(ctx, info.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := book.Find(ctx, text); !errors.Is(err, ErrInvalid) {
		t.Fatalf("a revoked token: %v, want %v", err, ErrInvalid)
	}
}

func TestTokenEndsWithItsLifetime(t *testing.T) {
	book, _ := open(t)
	text, _, err := book.Create(context.Background(), "", "ann", []caller.Scope{caller.Read}, time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := book.Find(context.Background(), text); !errors.Is(err, ErrInvalid) {
		t.Fatalf("an expired token: %v, want %v", err, ErrInvalid)
	}
}

func TestNobodyElsesTextIsAToken(t *testing.T) {
	book, _ := open(t)
	text, info, err := book.Create(context.Background(), "", "ann", []caller.Scope{caller.Read}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"", "bailey_", info.ID, hash(text), "bailey_" + hash(text), text[:len(text)-1], text + "x"} {
		if _, err := book.Find(context.Background(), other); !errors.Is(err, ErrInvalid) {
			t.Errorf("Find(%q) = %v, want %v", other, err, ErrInvalid)
		}
	}
}

func TestTokenIsNotOnTheDisk(t *testing.T) {
	book, dir := open(t)
	text, _, err := book.Create(context.Background(), "", "ann", []caller.Scope{caller.Read}, 0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of the store: %v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(text[len(prefix):])) {
			t.Errorf("%s holds the token itself", file)
		}
	}
}

func TestTokensThatWouldBeUselessOrAmbiguousAreRefused(t *testing.T) {
	book, _ := open(t)
	ctx := context.Background()
	for name, create := range map[string]func() error{
		"no owner":      func() error { _, _, err := book.Create(ctx, "", "", []caller.Scope{caller.Read}, 0); return err },
		"no scope":      func() error { _, _, err := book.Create(ctx, "", "ann", nil, 0); return err },
		"unknown scope": func() error { _, _, err := book.Create(ctx, "", "ann", []caller.Scope{"all"}, 0); return err },
		"unknown token": func() error { _, err := book.Revoke(ctx, "nothing"); return err },
		"empty name":    func() error { _, err := book.Revoke(ctx, ""); return err },
	} {
		if err := create(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, owner := range []string{"ann", "bob"} {
		if _, _, err := book.Create(ctx, "same", owner, []caller.Scope{caller.Read}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := book.Revoke(ctx, "same"); err == nil {
		t.Error("a name of two tokens revoked one of them")
	}
	if all, err := book.List(ctx, ""); err != nil || len(all) != 2 {
		t.Errorf("List = %d tokens, %v; want 2", len(all), err)
	}
	if anns, err := book.List(ctx, "ann"); err != nil || len(anns) != 1 || anns[0].Owner != "ann" {
		t.Errorf("List(ann) = %+v, %v", anns, err)
	}
}
