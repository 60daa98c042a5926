package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace/archive"
	"github.com/bailey-sandbox/bailey/internal/workspace/blob"
	"github.com/bailey-sandbox/bailey/internal/workspace/blob/blobtest"
)

// onEvery runs a test on every kind of shared store.
func onEvery(t *testing.T, test func(t *testing.T, shared blob.Store)) {
	open := func(t *testing.T, address string) blob.Store {
		s, err := blob.Open(address)
		must(t, err)
		return s
	}
	t.Run("directory", func(t *testing.T) { test(t, open(t, "file://"+t.TempDir())) })
	t.Run("s3", func(t *testing.T) { test(t, open(t, blobtest.Server(t))) })
}

// stacked makes a codebase of two layers, one of which was sealed.
func stacked(t *testing.T, s *Store) Codebase {
	t.Helper()
	imported(t, s, "base", project(t, "a", "b", "dir/c"))
	d := start(t, s, "base", "one")
	write(t, d.Upper()+"/new", "1")
	must(t, unix.Mknod(d.Upper()+"/b", unix.S_IFCHR, 0))
	d.Close()
	n, err := s.Snapshot("one")
	must(t, err)
	c, err := s.MakeCodebase("one", n.ID, "stacked")
	must(t, err)
	return c
}

func TestCodebaseIsTheSameOnAnotherMachine(t *testing.T) {
	onEvery(t, func(t *testing.T, shared blob.Store) {
		ctx := context.Background()
		here, there := newStore(t), newStore(t)
		c := stacked(t, here)
		for range 2 { // what is there already is not sent again
			must(t, here.Push(ctx, shared, "stacked"))
		}
		got, err := there.Pull(ctx, shared, "stacked", ImportOptions{Name: "mine"})
		must(t, err)
		if a, b := shownStack(t, here, c.stack()), shownStack(t, there, got.stack()); a != b {
			t.Errorf("got\n%swant\n%s", b, a)
		}
		if len(got.Layers) != 2 || len(layers(t, there)) != 2 {
			t.Errorf("layers %v", layers(t, there))
		}
		_, err = there.Pull(ctx, shared, "stacked", ImportOptions{})
		must(t, err)
		if len(layers(t, there)) != 2 {
			t.Errorf("layers were stored twice: %v", layers(t, there))
		}
		if _, err := there.Pull(ctx, shared, "missing", ImportOptions{}); !errors.Is(err, blob.ErrNotFound) {
			t.Errorf("got %v, want %v", err, blob.ErrNotFound)
		}
		must(t, there.Push(ctx, shared, "mine"))
	})
}

// overlayfs refuses a directory that is there twice.
func TestLayerThatIsThereTwiceIsCopied(t *testing.T) {
	ctx := context.Background()
	here, there := newStore(t), newStore(t)
	base := imported(t, here, "base", project(t, "a"))
	imported(t, here, "other", project(t, "b"))
	var layer bytes.Buffer
	must(t, here.ExportCodebase(&layer, "base", archive.OCI))
	same, err := here.ImportLayer(bytes.NewReader(layer.Bytes()), "base", ImportOptions{Name: "same"})
	must(t, err)
	if len(same.Layers) != 1 || same.Layers[0] != base.Layers[0] {
		t.Errorf("a layer on itself became %v", same.Layers)
	}
	var other bytes.Buffer
	must(t, here.ExportCodebase(&other, "other", archive.OCI))
	_, err = here.ImportLayer(&other, "base", ImportOptions{Name: "two"})
	must(t, err)
	three, err := here.ImportLayer(&layer, "two", ImportOptions{Name: "three"})
	must(t, err)
	shared, err := blob.OpenDirectory(t.TempDir())
	must(t, err)
	must(t, here.Push(ctx, shared, "three"))
	pulled, err := there.Pull(ctx, shared, "three", ImportOptions{})
	must(t, err)
	for _, c := range []Codebase{three, pulled} {
		if len(c.Layers) != 3 || c.Layers[0] == c.Layers[2] {
			t.Errorf("three layers became %v", c.Layers)
		}
	}
	if a, b := shownStack(t, here, three.stack()), shownStack(t, there, pulled.stack()); a != b {
		t.Errorf("got\n%swant\n%s", b, a)
	}
}

func TestForgedLayersAreRefused(t *testing.T) {
	ctx := context.Background()
	here, there := newStore(t), newStore(t)
	stacked(t, here)
	shared, err := blob.OpenDirectory(t.TempDir())
	must(t, err)
	must(t, here.Push(ctx, shared, "stacked"))
	base, err := here.Codebase("base")
	must(t, err)
	name := layerObject(strings.TrimPrefix(base.Layers[0], "sha256-"))
	original := content(t, shared, name)
	for what, forged := range map[string][]byte{
		"a changed byte":    bytes.Replace(original, []byte("content of a"), []byte("content of x"), 1),
		"something after":   append(bytes.Clone(original), make([]byte, 512)...),
		"a shortened layer": original[:len(original)-512],
		"no archive":        []byte("x"),
	} {
		if bytes.Equal(forged, original) {
			t.Fatalf("%s: nothing is forged", what)
		}
		must(t, shared.Put(ctx, name, bytes.NewReader(forged)))
		if _, err := there.Pull(ctx, shared, "stacked", ImportOptions{}); err == nil {
			t.Errorf("%s: it was taken", what)
		}
		if _, err := there.Codebase("stacked"); !errors.Is(err, ErrNoCodebase) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, _ := os.ReadDir(there.Dir() + "/tmp"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func content(t *testing.T, s blob.Store, name string) []byte {
	t.Helper()
	r, err := s.Get(context.Background(), name)
	must(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	must(t, err)
	return data
}

func TestForgedListsOfLayersAreRefused(t *testing.T) {
	ctx := context.Background()
	s := newStore(t)
	shared, err := blob.OpenDirectory(t.TempDir())
	must(t, err)
	for _, list := range []string{
		"", "{}", `{"version":1,"layers":[]}`, `{"version":2,"layers":["` + strings.Repeat("0", 64) + `"]}`,
		`{"version":1,"layers":["../../x"]}`, `{"version":1,"layers":["` + strings.Repeat("A", 64) + `"]}`,
	} {
		must(t, shared.Put(ctx, codebaseObject("forged"), strings.NewReader(list)))
		if _, err := s.Pull(ctx, shared, "forged", ImportOptions{}); err == nil {
			t.Errorf("%s was taken", list)
		}
	}
	if _, err := s.Pull(ctx, shared, "../x", ImportOptions{}); err == nil {
		t.Error("a name that leads out was taken")
	}
}
