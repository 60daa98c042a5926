package probe

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestSweepRemovesWhatKilledAuditsLeft(t *testing.T) {
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	name := func(pid int, age time.Duration, more string) string {
		return tokenPrefix + strconv.Itoa(pid) + "-" + strconv.FormatInt(time.Now().Add(-age).UnixNano(), 36) + more
	}
	gone := []string{
		name(ended.Process.Pid, 0, ""), name(ended.Process.Pid, 0, "-socket"), name(os.Getpid(), time.Hour, "-control"),
	}
	kept := []string{
		newToken(), newToken() + "-control", tokenPrefix + "notes", tokenPrefix + "0-0", tokenPrefix + "1x-2", "file", ".bailey-audit",
	}
	dir := t.TempDir()
	for _, name := range append(slices.Clone(gone), kept...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sub := name(ended.Process.Pid, 0, "-git")
	if err := os.MkdirAll(filepath.Join(dir, sub, "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	sweep(dir)
	for _, name := range gone {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	for _, name := range append(kept, sub) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s is gone", name)
		}
	}
}
