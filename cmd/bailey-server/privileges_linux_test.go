package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// capabilities are the sets of one thread, by their names in /proc.
func capabilities(t *testing.T, status string) map[string]uint64 {
	t.Helper()
	text, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		if strings.HasPrefix(name, "Cap") {
			if sets[name], err = strconv.ParseUint(value, 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sets
}

func TestServerOfRootGivesUpWhatItDoesNotNeed(t *testing.T) {
	testenv.Requires(t, testenv.Root, testenv.UserNamespaces)
	state := short(t)
	d := start(t, "--state", state, "--orphan-timeout", "1s")
	own := capabilities(t, "/proc/self/status")
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", d.Process.Pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		for name, set := range capabilities(t, thread) {
			for _, c := range unneeded {
				if set&(1<<c) != 0 {
					t.Errorf("%s has capability %d in %s", thread, c, name)
				}
			}
		}
		if kept := capabilities(t, thread)["CapEff"]; kept != own["CapEff"]&kept || kept == 0 {
			t.Errorf("%s has %x of %x", thread, kept, own["CapEff"])
		}
	}
	use(t, state) // all of it works without them
	if err := d.end(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
