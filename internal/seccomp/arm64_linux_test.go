package seccomp

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

// The tables of the other architecture are tested by running these same tests
// there.
func TestDecisionsOnArm64(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		return // the others just did
	}
	testenv.Requires(t, testenv.Modules, testenv.Program("qemu-aarch64"), testenv.NoRace)
	binary := filepath.Join(t.TempDir(), "seccomp.test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build for arm64: %v\n%s", err, out)
	}
	out, err := exec.Command("qemu-aarch64", binary, "-test.run", "Number|Arguments|Architecture|X32|Short|Fuzz").CombinedOutput()
	if err != nil {
		t.Fatalf("on arm64: %v\n%s", err, out)
	}
}
