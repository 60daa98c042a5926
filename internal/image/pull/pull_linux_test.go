package pull

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bailey-sandbox/bailey/internal/image"
)

// archive packs headers, each with its name as content if it is a file.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

// apply unpacks layers into a new directory, beside which nothing may change.
func apply(t *testing.T, most limits, layers ...[]byte) (root string, err error) {
	t.Helper()
	outside := t.TempDir()
	root = filepath.Join(outside, "root")
	for _, p := range []string{root, filepath.Join(outside, "victim")} {
		if err := os.Mkdir(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "victim", "file"), []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	u, err := newUnpacker(root, most)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if err == nil {
			err = u.layer(bytes.NewReader(l))
		}
	}
	if err == nil {
		err = u.finish()
	}
	if got := listing(t, outside, root); got != "victim/ victim/file=untouched" {
		t.Errorf("outside of the image there is now: %s", got)
	}
	return root, err
}

// listing shows a tree as one line: directories end in a slash, files have their content,
// links their text.
func listing(t *testing.T, root, without string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == root:
			return nil
		case p == without:
			return fs.SkipDir
		}
		at := strings.TrimPrefix(p, root+"/")
		switch {
		case d.IsDir():
			at += "/"
		case d.Type()&fs.ModeSymlink != 0:
			text, _ := os.Readlink(p)
			at += "->" + text
		default:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			at += "=" + string(data)
		}
		out = append(out, at)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// made is what every image gets.
const made = "etc/ etc/hostname= etc/hosts= etc/resolv.conf="

func TestLayersAreApplied(t *testing.T) {
	for _, test := range []struct {
		name   string
		layers [][]tar.Header
		want   string
	}{
		{"a file over a file", [][]tar.Header{{file("a")}, {file("./a"), file("b")}}, "a=./a b=b " + made},
		{"a directory over a file", [][]tar.Header{{file("a")}, {dir("a"), file("a/b")}}, "a/ a/b=a/b " + made},
		{"a file over a directory", [][]tar.Header{{dir("a"), file("a/b")}, {file("a")}}, "a=a " + made},
		{"a link over a directory", [][]tar.Header{{dir("a"), file("a/b")}, {link("a", "c")}}, "a->c " + made},
		{"parents that nobody packed", [][]tar.Header{{file("a/b/c")}}, "a/ a/b/ a/b/c=a/b/c " + made},
		{"a whiteout", [][]tar.Header{{dir("a"), file("a/b"), file("a/c")}, {file("a/.wh.b")}}, "a/ a/c=a/c " + made},
		{"a whiteout of a directory", [][]tar.Header{{dir("a"), file("a/b"), file("c")}, {file(".wh.a")}}, "c=c " + made},
		{"a whiteout of a link", [][]tar.Header{{dir("a"), file("a/b"), link("c", "a")}, {file(".wh.c")}}, "a/ a/b=a/b " + made},
		{"an opaque directory", [][]tar.Header{{dir("a"), file("a/b")}, {dir("a"), file("a/c"), file("a/.wh..wh..opq")}}, "a/ a/c=a/c " + made},
		{"an opaque directory, said first", [][]tar.Header{{dir("a"), file("a/b")}, {file("a/.wh..wh..opq"), file("a/c")}}, "a/ a/c=a/c " + made},
		{"an opaque directory above what is new", [][]tar.Header{{dir("a/b"), file("a/b/c")}, {file("a/b/d"), file("a/.wh..wh..opq")}}, "a/ a/b/ a/b/c=a/b/c a/b/d=a/b/d " + made},
		{"marks of other tools", [][]tar.Header{{file("a"), file(".wh..wh.plnk")}}, "a=a " + made},
		{"through a link", [][]tar.Header{{dir("usr/lib"), link("lib", "usr/lib")}, {file("lib/x")}}, made + " lib->usr/lib usr/ usr/lib/ usr/lib/x=lib/x"},
		{"through an absolute link", [][]tar.Header{{dir("usr/lib"), link("lib", "/usr/lib")}, {file("lib/x")}}, made + " lib->/usr/lib usr/ usr/lib/ usr/lib/x=lib/x"},
		{"a hard link", [][]tar.Header{{file("a"), hard("b", "a")}}, "a=a b=a " + made},
		{"a hard link to a lower layer", [][]tar.Header{{file("a")}, {hard("b", "/a")}}, "a=a b=a " + made},
		{"a hard link to itself", [][]tar.Header{{file("a"), hard("a", "a")}}, "a=a " + made},
		{"devices are left out", [][]tar.Header{{{Typeflag: tar.TypeChar, Name: "null"}, {Typeflag: tar.TypeFifo, Name: "pipe"}, {Typeflag: tar.TypeBlock, Name: "sda"}}}, made},
		{"an absolute name", [][]tar.Header{{file("/a")}}, "a=/a " + made},
		{"the root itself", [][]tar.Header{{dir("./"), dir("/")}}, made},
		{"a newline", [][]tar.Header{{file("a\nb")}}, "a\nb=a\nb " + made},
		{"no UTF-8", [][]tar.Header{{file("\xff")}}, made + " \xff=\xff"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var layers [][]byte
			for _, headers := range test.layers {
				layers = append(layers, archive(t, headers...))
			}
			root, err := apply(t, ordinary, layers...)
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, root, ""); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestNothingLeavesTheImage(t *testing.T) {
	for _, test := range []struct {
		name    string
		headers []tar.Header
		err     string // empty if it is led back inside
	}{
		{"dots", []tar.Header{file("../victim/file")}, "leads out"},
		{"dots in the middle", []tar.Header{file("a/../../victim/file")}, "leads out"},
		{"a whiteout above", []tar.Header{file("../.wh.victim")}, "leads out"},
		{"a whiteout of dots", []tar.Header{file(".wh...")}, ""},
		{"a link up", []tar.Header{link("up", "../victim"), file("up/file")}, ""},
		{"a long link up", []tar.Header{link("up", "../../../../../../../../tmp"), file("up/file")}, ""},
		{"an absolute link", []tar.Header{link("abs", "/"), file("abs/etc/passwd")}, ""},
		{"a link to a link", []tar.Header{link("a", ".."), link("b", "a/victim"), file("b/file")}, ""},
		{"a loop", []tar.Header{link("a", "b"), link("b", "a"), file("a/x")}, "too many levels"},
		{"a hard link up", []tar.Header{hard("x", "../victim/file")}, "leads out"},
		{"a hard link through a link", []tar.Header{link("up", "../victim"), hard("x", "up/file")}, "no such file"},
		{"a hard link to a directory", []tar.Header{dir("d"), hard("x", "d")}, "no file"},
		{"a file that replaces a link", []tar.Header{link("f", "../victim/file"), file("f")}, ""},
		{"a directory that replaces a link", []tar.Header{link("d", "../victim"), dir("d"), file("d/file")}, ""},
		{"an opaque link", []tar.Header{link("d", "../victim"), file("d/.wh..wh..opq")}, ""},
		{"a file as a directory", []tar.Header{file("f"), file("f/g")}, "not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := apply(t, ordinary, archive(t, test.headers...))
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
		})
	}
}

func TestModesAreTheUsers(t *testing.T) {
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	root, err := apply(t, ordinary, archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "closed", Mode: 0o500, ModTime: when}, file("closed/file"),
		tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o4755, Uid: 12, Gid: 13, ModTime: when},
		tar.Header{Typeflag: tar.TypeReg, Name: "secret", Mode: 0o010}))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"closed": fs.ModeDir | 0o700, "su": 0o755, "secret": 0o410} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s: %v, want %v", name, info.Mode(), want)
		}
		if name != "secret" && !info.ModTime().Equal(when) {
			t.Errorf("%s: %v, want %v", name, info.ModTime(), when)
		}
	}
}

func TestImagesHaveLimits(t *testing.T) {
	giant := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 1})
	for _, test := range []struct {
		name  string
		most  limits
		layer []byte
		err   error
	}{
		{"within", limits{bytes: 2, entries: 2}, archive(t, file("a"), file("b")), nil},
		{"too many", limits{bytes: 100, entries: 1}, archive(t, file("a"), file("b")), errLarge},
		{"too large", limits{bytes: 1, entries: 9}, archive(t, file("a"), file("b")), errLarge},
		{"larger than it is", limits{bytes: 1 << 10, entries: 9}, claim(giant, 1<<40), errLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := apply(t, test.most, test.layer); !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
			}
		})
	}
}

// claim has the first file of an archive claim another size.
func claim(archive []byte, size int64) []byte {
	out := bytes.Clone(archive)
	copy(out[124:136], []byte{0x80, 0, 0, 0, byte(size >> 56), byte(size >> 48), byte(size >> 40), byte(size >> 32), byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
	sum := 0
	copy(out[148:156], "        ")
	for _, b := range out[:512] {
		sum += int(b)
	}
	copy(out[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return out
}

func FuzzLayersStayInside(f *testing.F) {
	f.Add(archive(f, dir("a"), link("a/b", "../.."), file("a/b/c"), hard("d", "a/b/c"), file("a/.wh..wh..opq")))
	f.Fuzz(func(t *testing.T, layer []byte) {
		_, _ = apply(t, limits{bytes: 1 << 16, entries: 64}, layer) // it looks beside the image
	})
}

// example is an image with two layers.
func example(t *testing.T) v1.Image {
	t.Helper()
	i := empty.Image
	for _, content := range [][]byte{archive(t, dir("bin"), file("bin/sh"), file("old")), archive(t, file(".wh.old"), file("new"))} {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if i, err = mutate.AppendLayers(i, l); err != nil {
			t.Fatal(err)
		}
	}
	i, err := mutate.Config(i, v1.Config{Env: []string{"A=b"}, Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-l"}, WorkingDir: "/w", User: "u"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

const exampleListing = "bin/ bin/sh=bin/sh " + made + " new=new"

func pull(t *testing.T, s image.Store, ref string) (string, error) {
	t.Helper()
	return Pull(context.Background(), s, ref, func(string) {})
}

func TestImagesComeFromEverywhere(t *testing.T) {
	i := example(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://") + "/some/image:tag"
	ref, err := name.ParseReference(at)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archived, laid := filepath.Join(dir, "image.tar"), filepath.Join(dir, "layout")
	path, err := layout.Write(laid, empty.Index)
	if err == nil {
		err = errors.Join(path.AppendImage(i), remote.Write(ref, i), tarball.WriteToFile(archived, ref, i))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := image.Store{Dir: t.TempDir()}
	for _, from := range []string{at, strings.TrimSuffix(at, ":tag") + "@" + digest.String(), archived, laid} {
		id, err := pull(t, s, from)
		if err != nil {
			t.Errorf("%s: %v", from, err)
			continue
		}
		found, err := s.Find(from)
		if err != nil || found.ID != id {
			t.Errorf("%s: found %+v, %v", from, found, err)
			continue
		}
		if got := listing(t, found.Dir, ""); got != exampleListing {
			t.Errorf("%s: got %q", from, got)
		}
		if c := found.Config; c.User != "u" || c.WorkingDir != "/w" || len(c.Env) != 1 || c.Entrypoint[0] != "/bin/sh" || c.Cmd[0] != "-l" {
			t.Errorf("%s: %+v", from, c)
		}
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || len(list[0].Names) != 4 {
		t.Errorf("the same image is there %d times: %+v, %v", len(list), list, err)
	}
}

func TestImageThatIsNotWhatItSaysIsRefused(t *testing.T) {
	i := example(t)
	other := static.NewLayer(archive(t, file("evil")), types.OCIUncompressedLayer)
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	p, err := describe(i)
	if err != nil {
		t.Fatal(err)
	}
	p.layers = []v1.Layer{layers[0], other}
	if err := p.unpack(t.TempDir(), ordinary); err == nil || !strings.Contains(err.Error(), "layer 2: its content is sha256:") {
		t.Errorf("a layer that was exchanged: %v", err)
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendImage(i)
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := i.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := image.Store{Dir: t.TempDir()}
	for _, blob := range []v1.Hash{config, manifest} {
		file := filepath.Join(dir, "blobs", "sha256", blob.Hex)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range [][]byte{bytes.Replace(text, []byte("{"), []byte("{ "), 1), text} {
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := pull(t, s, dir); (err == nil) != bytes.Equal(content, text) {
				t.Errorf("changed: %v, and the answer is %v", !bytes.Equal(content, text), err)
			}
			if u, err := s.Begin(); err != nil || errors.Join(removeIfThere(u, dir), u.Close()) != nil {
				t.Fatal(err)
			}
		}
	}
	if list, err := s.List(); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
}

func removeIfThere(u *image.Update, ref string) error {
	if list, err := u.List(); err != nil || len(list) == 0 {
		return err
	}
	return u.Remove(ref)
}

func TestReferencesThatAreNoneAreNamed(t *testing.T) {
	s := image.Store{Dir: t.TempDir()}
	empty := t.TempDir()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		"UPPER CASE":            "is no reference",
		empty:                   "is no OCI layout",
		text:                    "is no archive",
		"/no/such/file":         "no such file",
		"127.0.0.1:1/image:tag": "refused",
	} {
		if _, err := pull(t, s, ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", ref, err, want)
		}
	}
}

func TestPathWhoseFileChangedIsPulledAgain(t *testing.T) {
	s := image.Store{Dir: t.TempDir()}
	file := filepath.Join(t.TempDir(), "image.tar")
	tag, err := name.NewTag("example:tag")
	if err != nil {
		t.Fatal(err)
	}
	first := example(t)
	if err := tarball.WriteToFile(file, tag, first); err != nil {
		t.Fatal(err)
	}
	if _, err := pull(t, s, file); err != nil {
		t.Fatal(err)
	}
	second, err := mutate.Config(first, v1.Config{User: "other"})
	if err == nil {
		err = tarball.WriteToFile(file, tag, second)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(file); !errors.Is(err, image.ErrNotHere) {
		t.Errorf("got %v, want %v", err, image.ErrNotHere)
	}
	if _, err := pull(t, s, file); err != nil {
		t.Fatal(err)
	}
	if i, err := s.Find(file); err != nil || i.Config.User != "other" {
		t.Errorf("got %+v, %v", i, err)
	}
}

// A pull that ended halfway leaves nothing that could be used, and its rest is removed.
func TestHalfAnImageIsNone(t *testing.T) {
	s := image.Store{Dir: t.TempDir()}
	u, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("interrupted")
	id := fmt.Sprintf("sha256:%x", sha256.Sum256(nil))
	if err := u.Add(&image.Image{ID: id}, func(root string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	left := filepath.Join(s.Dir, "tmp-left", "closed")
	if err := errors.Join(os.MkdirAll(left, 0o755), os.WriteFile(left+"/file", nil, 0o644), os.Chmod(left, 0o500), u.Close()); err != nil {
		t.Fatal(err)
	}
	if u, err = s.Begin(); err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if found, _ := filepath.Glob(filepath.Join(s.Dir, "tmp-*")); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
	if list, err := s.List(); err != nil || len(list) > 0 {
		t.Errorf("got %+v, %v", list, err)
	}
}
