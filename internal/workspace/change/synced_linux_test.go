package change

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/synced"
)

// TestAnApplyIsOnTheDiskStepByStep: what is saved and staged before the plan is, each
// file before its name, and the names before it is said that all is done. So it is
// with few files, each of which is waited for, and with many.
func TestAnApplyIsOnTheDiskStepByStep(t *testing.T) {
	testenv.Requires(t, testenv.NoRace, testenv.Program("strace"))
	for _, files := range []int{3, fewFiles + 1} {
		t.Run(fmt.Sprint(files, " files"), func(t *testing.T) {
			b := newBench(t, "d/", "d/old=1", "gone=1")
			b.fill(b.Upper(), "d/", "d/old=2", "new=1")
			for i := range files {
				b.fill(b.Upper(), fmt.Sprintf("d/file%d=%d", i, i))
			}
			b.Close()
			for _, what := range []string{"apply", "undo"} {
				b.wantSynced(what)
			}
		})
	}
}

// wantSynced traces an apply or undo in a process of its own.
func (b *bench) wantSynced(what string) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), killAt+"="+strconv.Itoa(1<<30), killIn+"="+b.store.Dir(), killing+"="+what)
	trace, err := synced.Run(cmd)
	b.must(err)
	base := filepath.Dir(b.source)
	isLock := func(name string) bool { return filepath.Base(name) == "lock" }
	for _, early := range trace.Early(base, isLock) {
		b.t.Errorf("%s: %s", what, early)
	}
	journal := b.Dir() + "/journal"
	committed, err := trace.PendingAtName(base, journal+"/plan")
	b.must(err)
	ended, err := trace.PendingAtRemoval(base, journal+"/plan")
	b.must(err)
	for when, pending := range map[string][]string{"committed": committed, "ended": ended} {
		for _, p := range pending {
			// In these, names go that are of no use any more.
			if p != journal && p != b.Dir()+"/base" && !isLock(p) && !strings.HasPrefix(filepath.Base(p), ".bailey-apply-") {
				b.t.Errorf("%s: %s is pending when the plan is %s", what, p, when)
			}
		}
	}
}
