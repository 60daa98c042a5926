package host

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFIFOInPlaceOfAFileDoesNotBlock(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := new(Facts).ReadFile(fifo); err == nil {
		t.Error("a FIFO was read")
	}
}
