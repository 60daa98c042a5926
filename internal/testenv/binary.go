package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// BinaryDirVariable names a directory with the commands already built. The test
// run sets it, so that a user who cannot reach the go command's caches has them
// too.
const BinaryDirVariable = "BAILEY_TEST_BIN"

// Binary is the path of a command of this module (a directory below cmd), built
// as it is released.
func Binary(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(BinaryDirVariable); dir != "" {
		return filepath.Join(dir, name)
	}
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// built builds every command into bin/ of the module, once a process. Test
// binaries of several packages run at once, so they take turns by a lock.
var built = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	// Not go.mod: the go command locks that one itself, and would wait for us.
	lock, err := os.Open(bin)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", bin, err)
	}
	build := exec.Command("make", "--silent", "build", "BIN="+bin)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	return bin, nil
})

// ModuleRoot is the directory of go.mod.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above: tests run in their package's directory")
		}
		dir = parent
	}
}
