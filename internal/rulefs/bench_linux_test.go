package rulefs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// bothWays runs a benchmark in a directory of the host and in a view of it.
func bothWays(b *testing.B, run func(b *testing.B, dir string)) {
	w := newWorld(b, rule("**/.env", pathrule.None), rule("docs/**/*.md", pathrule.View))
	b.Run("native", func(b *testing.B) { run(b, w.host) })
	b.Run("rules", func(b *testing.B) { run(b, w.mnt) })
}

const benchFiles = 1000

func fill(b *testing.B, dir string, size int) (names []string) {
	b.Helper()
	data := make([]byte, size)
	for i := range benchFiles {
		name := filepath.Join(dir, fmt.Sprintf("d%d", i%10), fmt.Sprintf("f%d", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			b.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func BenchmarkSmallRead(b *testing.B) {
	buf := make([]byte, 8192)
	bothWays(b, func(b *testing.B, dir string) {
		names := fill(b, dir, 4096)
		for _, name := range names {
			if _, err := os.ReadFile(name); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; b.Loop(); i++ {
			fd, err := unix.Open(names[i%len(names)], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := unix.Read(fd, buf); n != 4096 {
				b.Fatal(n, err)
			}
			_ = unix.Close(fd)
		}
	})
}

func BenchmarkWarmStat(b *testing.B) {
	bothWays(b, func(b *testing.B, dir string) {
		names := fill(b, dir, 10)
		var st unix.Stat_t
		for _, name := range names {
			if err := unix.Lstat(name, &st); err != nil {
				b.Fatal(err)
			}
		}
		for i := 0; b.Loop(); i++ {
			if err := unix.Lstat(names[i%len(names)], &st); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkLargeRead(b *testing.B) {
	const size = 64 << 20
	buf := make([]byte, 128<<10)
	bothWays(b, func(b *testing.B, dir string) {
		name := filepath.Join(dir, "large")
		if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(size)
		for b.Loop() {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			for {
				n, err := unix.Read(fd, buf)
				if err != nil {
					b.Fatal(err)
				}
				if n == 0 {
					break
				}
			}
			_ = unix.Close(fd)
		}
	})
}

func BenchmarkCreate(b *testing.B) {
	data := make([]byte, 1024)
	bothWays(b, func(b *testing.B, dir string) {
		dir = filepath.Join(dir, strings.ReplaceAll(b.Name(), "/", "-"))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			name := filepath.Join(dir, fmt.Sprintf("new%d", i))
			fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := unix.Write(fd, data); err != nil {
				b.Fatal(err)
			}
			_ = unix.Close(fd)
		}
	})
}
