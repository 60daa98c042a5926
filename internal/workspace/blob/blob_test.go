package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace/blob"
	"github.com/bailey-sandbox/bailey/internal/workspace/blob/blobtest"
)

// Every store must do all of this.
func stores(t *testing.T, test func(t *testing.T, s blob.Store)) {
	t.Run("directory", func(t *testing.T) { test(t, open(t, "file://"+t.TempDir()+"/blobs")) })
	t.Run("s3", func(t *testing.T) { test(t, open(t, blobtest.Server(t))) })
}

func open(t *testing.T, address string) blob.Store {
	t.Helper()
	s, err := blob.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s blob.Store, name, content string) {
	t.Helper()
	if err := s.Put(context.Background(), name, strings.NewReader(content)); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s blob.Store, name string) string {
	t.Helper()
	r, err := s.Get(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestObjectsAreKept(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		ctx := context.Background()
		if _, err := s.Get(ctx, "a/one"); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("before: got %v, want %v", err, blob.ErrNotFound)
		}
		if has, err := s.Has(ctx, "a/one"); has || err != nil {
			t.Errorf("before: has %v, %v", has, err)
		}
		put(t, s, "a/one", "first")
		put(t, s, "a/one", "second")
		put(t, s, "a/two", "")
		put(t, s, "b/three", strings.Repeat("large ", 4<<20)) // more than a part
		if got := get(t, s, "a/one"); got != "second" {
			t.Errorf("got %q", got)
		}
		if got := get(t, s, "a/two"); got != "" {
			t.Errorf("got %q", got)
		}
		if got := get(t, s, "b/three"); got != strings.Repeat("large ", 4<<20) {
			t.Errorf("got %d bytes", len(got))
		}
		if names, err := s.List(ctx, "a/"); err != nil || strings.Join(names, " ") != "a/one a/two" {
			t.Errorf("list: %v, %v", names, err)
		}
		for range 2 {
			if err := s.Remove(ctx, "a/one"); err != nil {
				t.Errorf("remove: %v", err)
			}
		}
		if has, err := s.Has(ctx, "a/one"); has || err != nil {
			t.Errorf("after: has %v, %v", has, err)
		}
	})
}

func TestObjectThatWasCutShortIsNotThere(t *testing.T) {
	stores(t, func(t *testing.T, s blob.Store) {
		broken := errors.New("the reader broke")
		for _, before := range []int{0, 1000, 20 << 20} {
			err := s.Put(context.Background(), "half", io.MultiReader(bytes.NewReader(make([]byte, before)), failing{broken}))
			if !errors.Is(err, broken) {
				t.Errorf("after %d bytes: got %v, want %v", before, err, broken)
			}
			if has, err := s.Has(context.Background(), "half"); has || err != nil {
				t.Errorf("after %d bytes: has %v, %v", before, has, err)
			}
		}
		if names, err := s.List(context.Background(), ""); len(names) != 0 || err != nil {
			t.Errorf("left: %v, %v", names, err)
		}
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestNamesThatLeadOutAreRefused(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/victim", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, "file://"+outside+"/in")
	for _, name := range []string{"", ".", "..", "../victim", "a/../../victim", "/victim", "a//b", "a b", "a\x00", ".writing~x", "ä"} {
		if _, err := s.Get(context.Background(), name); err == nil || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%q: got %v", name, err)
		}
		if err := s.Put(context.Background(), name, strings.NewReader("")); err == nil {
			t.Errorf("%q was put", name)
		}
		if err := s.Remove(context.Background(), name); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
}

func TestAddressesOfNoStoreAreRefused(t *testing.T) {
	for _, address := range []string{"", "/tmp/x", "file://host/x", "http://x", "s3://", "s3://key:secret@bucket", "s3://b?endpoint=nonsense"} {
		if _, err := blob.Open(address); err == nil {
			t.Errorf("%q was opened", address)
		}
	}
}
