package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const id = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// filled is a store with an image of one file.
func filled(t *testing.T, names ...string) Store {
	t.Helper()
	s := Store{Dir: filepath.Join(t.TempDir(), "images")}
	u, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	err = u.Add(&Image{ID: id, Config: Config{Env: []string{"A=b"}}}, func(root string) error {
		return os.WriteFile(filepath.Join(root, "file"), []byte("content"), 0o644)
	})
	for _, name := range names {
		err = errors.Join(err, u.Name(name, id))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestImagesAreFoundByNameAndID(t *testing.T) {
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := filled(t, "name:tag", file)
	t.Chdir(filepath.Dir(file))
	for _, ref := range []string{"name:tag", file, "./image.tar", id, id[len("sha256:"):], id[len("sha256:"):][:12]} {
		i, err := s.Find(ref)
		if err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		text, err := os.ReadFile(filepath.Join(i.Dir, "file"))
		if string(text) != "content" || err != nil || i.ID != id || i.Config.Env[0] != "A=b" {
			t.Errorf("%s: %q, %v, %+v", ref, text, err, i)
		}
	}
	for _, ref := range []string{"name", "name:other", "0123", "ffffffffffff", id + "0", "../../etc"} {
		if i, err := s.Find(ref); err == nil {
			t.Errorf("%s: found %+v", ref, i)
		}
	}
}

func TestEmptyStoreHasNoImages(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "none")}
	if list, err := s.List(); len(list) > 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
	if _, err := s.Find("name"); !errors.Is(err, ErrNotHere) {
		t.Errorf("got %v", err)
	}
}

func TestImageInUseIsNotRemoved(t *testing.T) {
	s := filled(t, "name:tag", "other:tag")
	if _, err := s.Find("name:tag"); err != nil { // this process uses it from now on
		t.Fatal(err)
	}
	u, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.Remove("name:tag"); err == nil || !strings.Contains(err.Error(), "a command runs in it") {
		t.Errorf("got %v", err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || len(list[0].Names) != 2 {
		t.Errorf("got %+v, %v", list, err)
	}
}

func TestRemovedImageIsGoneWithItsNames(t *testing.T) {
	s := filled(t, "name:tag", "other:tag")
	u, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.Remove("other:tag"); err != nil {
		t.Fatal(err)
	}
	if err := u.Remove("name:tag"); err == nil || !strings.Contains(err.Error(), "there is no such image") {
		t.Errorf("got %v", err)
	}
	if left, err := filepath.Glob(s.Dir + "/*/*"); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}
