package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// TestEveryWorkloadIsMeasured: and the script knows no other.
func TestEveryWorkloadIsMeasured(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testenv.ModuleRoot(t), "scripts/bench/workspace-bench.sh"))
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)\nworkloads=\((.*?)\)`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the script has no list of workloads")
	}
	got := strings.Fields(string(list[1]))
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(workloads)); !slices.Equal(got, want) {
		t.Errorf("the script measures %q, want %q", got, want)
	}
}
