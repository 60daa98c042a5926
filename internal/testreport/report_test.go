package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportFailsForTheRightReasons(t *testing.T) {
	const (
		pass      = `{"Action":"pass","Package":"p","Test":"TestA"}`
		fail      = `{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}`
		needsRoot = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: requires: root\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestA"}`
		needsLong = `{"Action":"output","Package":"p","Test":"TestA","Output":"requires: long\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestA"}`
		needsBoth = `{"Action":"output","Package":"p","Test":"TestA","Output":"requires: root, long\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestA"}`
		needsABI  = `{"Action":"output","Package":"p","Test":"TestA","Output":"requires: landlock 9\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestA"}`
		noReason  = `{"Action":"output","Package":"p","Test":"TestA","Output":"not today\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestA"}`
		noBuild   = `{"ImportPath":"p [p.test]","Action":"build-output","Output":"undefined: x\n"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`
		died      = `{"Action":"run","Package":"p","Test":"TestA"}`
	)
	for _, c := range []struct {
		name  string
		runs  []string
		ok    bool
		shows string
	}{
		{"passed in both runs", []string{pass, pass}, true, "1 passed, 0 failed, 0 skipped"},
		{"ran as one user, skipped as the other", []string{pass, needsRoot}, true, "1 passed, 0 failed, 0 skipped"},
		{"failed in one run", []string{pass, fail}, false, "got 1, want 2"},
		{"skipped in both runs", []string{needsRoot, needsRoot}, false, "nothing here provides root"},
		{"skipped for want of something that may lack", []string{needsLong, needsBoth}, true, "0 passed, 0 failed, 1 skipped"},
		{"kernel too old", []string{needsABI}, true, "0 passed, 0 failed, 1 skipped"},
		{"skipped without a requirement", []string{noReason}, false, "names no requirement"},
		{"package does not build", []string{noBuild}, false, "undefined: x"},
		{"process died in a test", []string{died}, false, "never finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			ok, err := report(&out, writeRuns(t, c.runs), absent([]string{"long"}, 7))
			if err != nil {
				t.Fatal(err)
			}
			if ok != c.ok || !strings.Contains(out.String(), c.shows) {
				t.Errorf("ok: got %v, want %v; output must contain %q:\n%s", ok, c.ok, c.shows, out.String())
			}
		})
	}
}

func TestFailedStageFailsTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stages")
	if err := os.WriteFile(file, []byte("vet\tfailed\t3\t\t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	ok, err := report(&out, file, absent(nil, 7))
	if err != nil || ok {
		t.Errorf("got %v, %v; want false, nil", ok, err)
	}
}

func writeRuns(t *testing.T, runs []string) (stagesFile string) {
	t.Helper()
	dir := t.TempDir()
	var stages strings.Builder
	for i, events := range runs {
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, []byte(events+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&stages, "run %d\tran\t1\t\t%s\n", i, file)
	}
	stagesFile = filepath.Join(dir, "stages")
	if err := os.WriteFile(stagesFile, []byte(stages.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return stagesFile
}

func TestStagesThatCannotBeReadAreAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stages")
	for text, want := range map[string]string{"": "no stage ran", "a\tb\n": "has 2 fields, want 5"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readStages(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
