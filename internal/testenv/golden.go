package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// Golden compares what a test got with a file of testdata, or writes the file if
// that is to be updated.
func Golden(t testing.TB, name, got string, update bool) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}
