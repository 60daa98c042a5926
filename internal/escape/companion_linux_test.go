package escape

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func init() {
	// usurp puts another program in the place of each.
	attacks["usurp"] = func(programs []string) {
		const evil = "#!/bin/sh\necho usurped > usurped\n"
		for _, name := range programs {
			report("write "+name, os.WriteFile(name, []byte(evil), 0o755))
			report("remove "+name, os.Remove(name))
			report("rename "+name, os.Rename(name, name+".old"))
			other := filepath.Dir(name) + "/other"
			report("write another", os.WriteFile(other, []byte(evil), 0o755))
			report("link", os.Link(other, name))
			report("symlink", os.Symlink(other, name))
			report("rename over", os.Rename(other, name))
			report("exchange", unix.Renameat2(unix.AT_FDCWD, other, unix.AT_FDCWD, name, unix.RENAME_EXCHANGE))
			report("truncate", os.Truncate(name, 0))
			report("chmod", os.Chmod(name, 0o777))
			_ = os.Remove(other)
		}
		dir := filepath.Dir(programs[0])
		report("rename the directory", os.Rename(dir, dir+".old"))
	}
}

// What Bailey starts beside itself runs without a sandbox. It may have been
// installed where the sandbox writes: in the project.
func TestProgramsOfBaileyAreNotReplaced(t *testing.T) {
	testenv.Requires(t, testenv.UserNamespaces, testenv.Landlock(1))
	b := newBox(t)
	bin := b.project + "/bin"
	must(t, os.Mkdir(bin, 0o755))
	install := func(names ...string) {
		for _, name := range names {
			from, err := os.Open(testenv.Binary(t, name))
			must(t, err)
			to, err := os.OpenFile(bin+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
			must(t, err)
			_, err = io.Copy(to, from)
			must(t, err)
			from.Close()
			to.Close()
		}
	}
	install("bailey", "bailey-gate") // and no baileyd
	programs := []string{bin + "/bailey-gate", bin + "/baileyd", bin + "/bailey"}
	for _, policy := range []string{`{}`, oneDomain} {
		unchanged(t, func() {
			c := exec.Command(bin+"/bailey", append([]string{"--policy", policy, "--", b.program, "attack", "usurp"}, programs...)...)
			c.Dir = b.project
			out, err := c.CombinedOutput()
			t.Logf("%v: %s", err, out)
			if !strings.Contains(string(out), "write another: done") {
				t.Error("control: the directory cannot be written")
			}
		}, programs...)
	}
	b.free("usurp", programs...)
	if info, err := os.Stat(b.project + "/bin.old/bailey-gate"); err != nil || info.Size() > 100 {
		t.Errorf("control: got %+v, %v", info, err)
	}
}
