package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/tree"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// directory is one whose content can be removed whatever its modes are.
func directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { must(t, tree.Remove(open(t, dir), "d")) })
	must(t, os.Mkdir(dir+"/d", 0o700))
	return dir + "/d"
}

// layer makes a tree as an overlay leaves it, with one of everything.
func layer(t testing.TB) string {
	t.Helper()
	dir := directory(t)
	write(t, dir+"/a/plain", "hello\n")
	write(t, dir+"/a/odd \xff\n\tname", "odd")
	write(t, dir+"/a/"+strings.Repeat("long", 50)+"/"+strings.Repeat("x", 200), "long")
	write(t, dir+"/a/large", strings.Repeat("0123456789abcdef", 40_000))
	write(t, dir+"/.wh.mine", "not a sign")
	write(t, dir+"/.bailey.wh.mine", "nor this")
	write(t, dir+"/.wh.dir/in", "nor this")
	must(t, os.Chmod(dir+"/a/plain", 0o4751))
	must(t, os.Symlink("/nowhere/\xfe"+strings.Repeat("y", 150), dir+"/a/link"))
	must(t, os.Link(dir+"/a/plain", dir+"/z-same"))
	must(t, os.Link(dir+"/.wh.mine", dir+"/z-escaped"))
	must(t, unix.Mkfifo(dir+"/pipe", 0o640))
	must(t, unix.Mknod(dir+"/removed", unix.S_IFCHR, 0))
	must(t, unix.Mknod(dir+"/.wh.removed", unix.S_IFCHR, 0))
	write(t, dir+"/opaque/new", "x")
	must(t, unix.Setxattr(dir+"/opaque", tree.Opaque, []byte("y"), 0))
	must(t, unix.Setxattr(dir+"/a/plain", "user.note", []byte("v\x00w\n"), 0))
	sparse(t, dir+"/sparse", 64<<20, 32<<20)
	sparse(t, dir+"/starts", 1<<20, 0)
	sparse(t, dir+"/ends", 1<<20+5, 1<<20)
	must(t, os.WriteFile(dir+"/zeros", make([]byte, 300_001), 0o600))
	for i, name := range []string{"a/plain", "a/large", "opaque", "a"} {
		stamp := unix.NsecToTimespec(time.Unix(1_000_000_000, int64(i)*100).UnixNano())
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/"+name, []unix.Timespec{stamp, stamp}, unix.AT_SYMLINK_NOFOLLOW))
	}
	early := unix.Timespec{Sec: -3, Nsec: 250_000_000}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, dir+"/pipe", []unix.Timespec{early, early}, 0))
	return dir
}

func sparse(t testing.TB, path string, size, at int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("data!"), at)
	must(t, err)
}

func archiveOf(t testing.TB, dir string, form Form) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, Write(&b, []*os.File{open(t, dir)}, form))
	return b.Bytes()
}

func TestLayerComesBackByteForByte(t *testing.T) {
	dir := layer(t)
	first := archiveOf(t, dir, OCI)
	if !bytes.Equal(first, archiveOf(t, dir, OCI)) {
		t.Fatal("two archives of one tree differ")
	}
	if len(first) > 4<<20 {
		t.Errorf("the archive has %d bytes: holes were written", len(first))
	}
	back := directory(t)
	must(t, Read(bytes.NewReader(first), open(t, back), ReadOptions{Form: OCI}))
	if !bytes.Equal(first, archiveOf(t, back, OCI)) {
		t.Errorf("the archive of what was unpacked differs:\n%s", differing(first, archiveOf(t, back, OCI)))
	}
	for _, name := range []string{"/.wh.mine", "/.bailey.wh.mine", "/.wh.dir/in", "/sparse", "/zeros", "/ends"} {
		want, _ := os.ReadFile(dir + name)
		got, err := os.ReadFile(back + name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s came back as %d bytes, %v", name, len(got), err)
		}
	}
	var st unix.Stat_t
	for _, name := range []string{"/removed", "/.wh.removed"} {
		if err := unix.Lstat(back+name, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			t.Errorf("%s is no sign of a removed file: %o, %v", name, st.Mode, err)
		}
	}
	must(t, unix.Stat(back+"/sparse", &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("the sparse file takes %d bytes", st.Blocks*512)
	}
}

// differing lists the entries that one archive has and the other has not.
func differing(a, b []byte) string {
	list := func(data []byte) map[string]bool {
		entries := map[string]bool{}
		r := tar.NewReader(bytes.NewReader(data))
		for h, err := r.Next(); err == nil; h, err = r.Next() {
			entries[fmt.Sprintf("%q %c %o %d %s %q %q\n", h.Name, h.Typeflag, h.Mode, h.Size, h.ModTime, h.Linkname, h.PAXRecords)] = true
		}
		return entries
	}
	was, is := list(a), list(b)
	out := ""
	for e := range was {
		if !is[e] {
			out += "- " + e
		}
	}
	for e := range is {
		if !was[e] {
			out += "+ " + e
		}
	}
	return out
}

func TestHolesDoNotChangeTheArchive(t *testing.T) {
	holes, full := directory(t), directory(t)
	sparse(t, holes+"/f", 1<<20, 300_000)
	content, _ := os.ReadFile(holes + "/f")
	must(t, os.WriteFile(full+"/f", content, 0o644))
	for _, dir := range []string{holes, full} {
		must(t, os.Chmod(dir+"/f", 0o600))
		for _, p := range []string{dir + "/f", dir} {
			must(t, os.Chtimes(p, time.Unix(5, 0), time.Unix(5, 0)))
		}
	}
	if !bytes.Equal(archiveOf(t, holes, OCI), archiveOf(t, full, OCI)) {
		t.Error("the archive depends on what the disk does with zeros")
	}
}

func TestPlainArchiveHasNoSigns(t *testing.T) {
	r := tar.NewReader(bytes.NewReader(archiveOf(t, layer(t), Plain)))
	seen := map[string]bool{}
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		seen[h.Name] = true
	}
	for name, want := range map[string]bool{".wh.mine": true, "removed": false, ".wh.removed": false, "opaque/.wh..wh..opq": false, "sparse": true} {
		if seen[name] != want {
			t.Errorf("%s: in the archive %v, want %v", name, seen[name], want)
		}
	}
}

func TestOtherProgramsReadTheArchive(t *testing.T) {
	testenv.Requires(t, testenv.Program("tar"))
	dir, back := layer(t), directory(t)
	unpack := exec.Command("tar", "-x", "-p", "--xattrs", "-C", back)
	unpack.Stdin = bytes.NewReader(archiveOf(t, dir, Plain))
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if a, b := archiveOf(t, dir, Plain), archiveOf(t, back, Plain); !bytes.Equal(a, b) {
		t.Errorf("what tar unpacked differs:\n%s", differing(a, b))
	}
}

func TestArchivesOfOthersAreRead(t *testing.T) {
	testenv.Requires(t, testenv.Program("tar"))
	dir := layer(t)
	must(t, os.Remove(dir+"/removed"))
	must(t, os.Remove(dir+"/.wh.removed"))
	must(t, unix.Removexattr(dir+"/opaque", tree.Opaque))
	for _, args := range [][]string{{"--format=gnu"}, {"--format=pax", "--sparse", "--xattrs"}, {"--format=gnu", "--sparse", "-z"}} {
		packed, err := exec.Command("tar", append(args, "-c", "-C", dir, ".")...).Output()
		must(t, err)
		back := directory(t)
		must(t, Read(bytes.NewReader(packed), open(t, back), ReadOptions{Form: Plain}))
		for _, name := range []string{"/a/plain", "/a/large", "/sparse", "/.wh.mine", "/a/odd \xff\n\tname"} {
			want, _ := os.ReadFile(dir + name)
			got, err := os.ReadFile(back + name)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v: %q came back as %d bytes, %v", args, name, len(got), err)
			}
		}
	}
}

// entry is one file of a forged archive.
type entry struct {
	name, content, link string
	kind                byte
	pax                 map[string]string
}

func forge(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.kind == 0 {
			e.kind = tar.TypeReg
		}
		must(t, w.WriteHeader(&tar.Header{
			Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.content)), PAXRecords: e.pax,
		}))
		_, err := io.WriteString(w, e.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func TestForgedArchivesAreRefused(t *testing.T) {
	outside := t.TempDir()
	write(t, outside+"/victim", "untouched")
	for name, entries := range map[string][]entry{
		"parent":                  {{name: "../x", content: "x"}},
		"parent inside":           {{name: "a/../../x", content: "x"}},
		"absolute":                {{name: outside + "/victim", content: "x"}},
		"link as parent":          {{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/victim", content: "x"}},
		"relative link as parent": {{name: "l", kind: tar.TypeSymlink, link: ".."}, {name: "l/x", content: "x"}},
		"link to itself":          {{name: "l", kind: tar.TypeSymlink, link: "l"}, {name: "l/x", content: "x"}},
		"directory over link":     {{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/", kind: tar.TypeDir}},
		"character device":        {{name: "d", kind: tar.TypeChar}},
		"block device":            {{name: "d", kind: tar.TypeBlock}},
		"hard link out":           {{name: "h", kind: tar.TypeLink, link: "../victim"}},
		"hard link absolute":      {{name: "h", kind: tar.TypeLink, link: outside + "/victim"}},
		"hard link by a link":     {{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "h", kind: tar.TypeLink, link: "l/victim"}},
		"hard link to nothing":    {{name: "h", kind: tar.TypeLink, link: "missing"}},
		"hard link to the root":   {{name: "h", kind: tar.TypeLink, link: "./"}},
		"hard link to a sign":     {{name: ".wh.gone"}, {name: "h", kind: tar.TypeLink, link: "gone"}},
		"file without a name":     {{name: "."}},
		"file over directory":     {{name: "d/", kind: tar.TypeDir}, {name: "d", content: "x"}},
		"directory over file":     {{name: "d", content: "x"}, {name: "d/", kind: tar.TypeDir}},
		"opaque by attribute":     {{name: "d/", kind: tar.TypeDir, pax: map[string]string{"SCHILY.xattr.user.overlay.opaque": "y"}}},
		"redirect by attribute":   {{name: "d/", kind: tar.TypeDir, pax: map[string]string{"SCHILY.xattr.user.overlay.redirect": "/etc"}}},
		"trusted by attribute":    {{name: "d/", kind: tar.TypeDir, pax: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}}},
		"sign of the parent":      {{name: ".wh..."}, {name: ".wh..", content: ""}},
		"sign of a sign":          {{name: ".wh..wh.x"}},
		"sign of nothing":         {{name: ".wh."}},
		"sign with content":       {{name: ".wh.x", content: "x"}},
		"sign that is a link":     {{name: ".wh.x", kind: tar.TypeSymlink, link: "/"}},
		"file in a sign":          {{name: ".wh.x/y", content: "x"}},
		"name too long":           {{name: strings.Repeat("n", 256), content: "x"}},
		"too deep":                {{name: strings.Repeat("d/", 1001) + "f", content: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Read(bytes.NewReader(forge(t, entries...)), open(t, directory(t)), ReadOptions{Form: OCI}); err == nil {
				t.Error("it was unpacked")
			}
			if got, _ := os.ReadFile(outside + "/victim"); string(got) != "untouched" {
				t.Errorf("the victim has become %q", got)
			}
		})
	}
}

func TestLimitsHoldForWhatAnArchiveSays(t *testing.T) {
	dir := directory(t)
	sparse(t, dir+"/giant", 1<<40, 1<<39)
	giant := archiveOf(t, dir, OCI)
	if len(giant) > 1<<20 {
		t.Fatalf("the archive of a hole has %d bytes", len(giant))
	}
	err := Read(bytes.NewReader(giant), open(t, directory(t)), ReadOptions{Form: OCI, Limits: Limits{Bytes: 1 << 30}})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("a giant: got %v, want %v", err, ErrTooLarge)
	}
	many := forge(t, entry{name: "a"}, entry{name: "b"}, entry{name: "c"})
	err = Read(bytes.NewReader(many), open(t, directory(t)), ReadOptions{Limits: Limits{Files: 2}})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("many files: got %v, want %v", err, ErrTooLarge)
	}
	must(t, Read(bytes.NewReader(many), open(t, directory(t)), ReadOptions{Limits: Limits{Files: 3, Bytes: 1}}))
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestArchiveThatNeverEndsIsRefused(t *testing.T) {
	err := Read(io.MultiReader(bytes.NewReader(forge(t, entry{name: "a"})), endless{}), open(t, directory(t)), ReadOptions{})
	if err == nil {
		t.Error("it was unpacked")
	}
}

func TestShortenedArchivesAreRefused(t *testing.T) {
	whole := forge(t, entry{name: "a", content: strings.Repeat("x", 6)}, entry{name: "zeros", content: string(make([]byte, 1100))})
	for n := range len(whole) {
		if edge := n % 512; edge > 1 && edge != 100 && edge != 511 {
			continue
		}
		if err := Read(bytes.NewReader(whole[:n]), open(t, directory(t)), ReadOptions{}); err == nil {
			t.Errorf("%d of %d bytes were taken for an archive", n, len(whole))
		}
	}
}

func TestCompressedArchivesAreRead(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(forge(t, entry{name: "f", content: "x"}))
	must(t, err)
	must(t, z.Close())
	dir := directory(t)
	must(t, Read(&b, open(t, dir), ReadOptions{}))
	if got, _ := os.ReadFile(dir + "/f"); string(got) != "x" {
		t.Errorf("got %q", got)
	}
}

func TestOtherCompressionsAreNamed(t *testing.T) {
	for begin, want := range map[string]string{
		"\x28\xb5\x2f\xfd\x04\x58": "compressed by zstd", "\xfd7zXZ\x00\x00": "compressed by xz", "BZh91AY&SY": "compressed by bzip2", "PK\x03\x04\x14": "a zip file",
	} {
		if err := Read(strings.NewReader(begin), open(t, directory(t)), ReadOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestMissingDirectoriesAreMade(t *testing.T) {
	dir := directory(t)
	must(t, Read(bytes.NewReader(forge(t, entry{name: "a/b/c/f", content: "x"}, entry{name: "a/b/g", content: "y"})), open(t, dir), ReadOptions{}))
	if got, _ := os.ReadFile(dir + "/a/b/c/f"); string(got) != "x" {
		t.Errorf("got %q", got)
	}
	var st unix.Stat_t
	must(t, unix.Stat(dir+"/a/b", &st))
	if st.Mode&0o777 != 0o755 || st.Mtim.Sec != 0 {
		t.Errorf("mode %o, time %d", st.Mode&0o777, st.Mtim.Sec)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(forge(f, entry{name: "a/f", content: "x"}, entry{name: "a/.wh.gone"}, entry{name: "l", kind: tar.TypeSymlink, link: ".."}))
	f.Add(archiveOf(f, layerWithout(f), OCI))
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		must(t, os.Mkdir(outer+"/in", 0o700))
		dir := open(t, outer+"/in")
		err := Read(bytes.NewReader(data), dir, ReadOptions{Form: OCI, Limits: Limits{Bytes: 1 << 20, Files: 100}})
		names, _ := os.ReadDir(outer)
		if len(names) != 1 {
			t.Errorf("beside the tree there is now %v", names)
		}
		if err == nil {
			if unix.Access(outer+"/in", unix.R_OK|unix.X_OK) == nil {
				again(t, dir)
			}
		}
		must(t, tree.Remove(open(t, outer), "in"))
	})
}

// again checks that what was unpacked can be packed and unpacked to the same.
func again(t *testing.T, dir *os.File) {
	var first, second bytes.Buffer
	if err := Write(&first, []*os.File{dir}, OCI); err != nil {
		return // files that their owner may not read
	}
	back := directory(t)
	must(t, Read(bytes.NewReader(first.Bytes()), open(t, back), ReadOptions{Form: OCI}))
	must(t, Write(&second, []*os.File{open(t, back)}, OCI))
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("it came back as another:\n%s", differing(first.Bytes(), second.Bytes()))
	}
}

// layerWithout is a small tree, for the fuzzer to start with.
func layerWithout(t testing.TB) string {
	dir := directory(t)
	write(t, dir+"/a/.wh.mine", "x")
	must(t, unix.Mknod(dir+"/removed", unix.S_IFCHR, 0))
	must(t, os.Link(dir+"/a/.wh.mine", dir+"/same"))
	return dir
}

// FuzzEntries goes deeper than FuzzRead: its archives are well formed, with names,
// kinds and links that are not.
func FuzzEntries(f *testing.F) {
	f.Add("l", byte('2'), "..", "l/x", byte('0'), "", "user.overlay.opaque")
	f.Add("a/.wh.b", byte('0'), "", "h", byte('1'), "a/b", "user.note")
	f.Add("d/", byte('5'), "", "d", byte('6'), "/etc", "")
	f.Fuzz(func(t *testing.T, name1 string, kind1 byte, link1, name2 string, kind2 byte, link2, attr string) {
		outer := t.TempDir()
		must(t, os.Mkdir(outer+"/in", 0o700))
		must(t, os.WriteFile(outer+"/victim", []byte("untouched"), 0o600))
		first := header{name: name1, kind: kind1, link: link1, mode: 0o755}
		second := header{name: name2, kind: kind2, link: link2, mode: 0o644}
		if attr != "" && !strings.ContainsAny(attr, "=\x00") {
			first.records = []string{"SCHILY.xattr." + attr + "=y"}
		}
		data, err := first.append(nil)
		must(t, err)
		data, err = second.append(data)
		must(t, err)
		dir := open(t, outer+"/in")
		err = Read(bytes.NewReader(append(data, make([]byte, 1024)...)), dir, ReadOptions{Form: OCI, Limits: Limits{Bytes: 1 << 20, Files: 100}})
		if names, _ := os.ReadDir(outer); len(names) != 2 {
			t.Errorf("beside the tree there is now %v", names)
		}
		if got, _ := os.ReadFile(outer + "/victim"); string(got) != "untouched" {
			t.Errorf("the victim has become %q", got)
		}
		var st unix.Stat_t
		must(t, unix.Stat(outer+"/victim", &st))
		if st.Nlink != 1 {
			t.Error("the victim has another name")
		}
		if err == nil {
			again(t, dir)
		}
		must(t, tree.Remove(open(t, outer), "in"))
	})
}
