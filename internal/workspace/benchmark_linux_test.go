package workspace

import (
	"fmt"
	"os"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

func benchmarkProject(b *testing.B, files int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range files {
		write(b, fmt.Sprintf("%s/%d/%d", dir, i/100, i), "a few bytes")
	}
	return dir
}

func BenchmarkImport(b *testing.B) {
	const files = 5000
	dir, s := benchmarkProject(b, files), newStore(b)
	i := 0
	for b.Loop() {
		imported(b, s, fmt.Sprint("c", i), dir)
		i++
	}
	b.ReportMetric(float64(files*b.N)/b.Elapsed().Seconds(), "files/s")
}

func BenchmarkSnapshot(b *testing.B) {
	s := newStore(b)
	imported(b, s, "base", benchmarkProject(b, 100))
	d := start(b, s, "base", "one")
	d.Close()
	for b.Loop() {
		b.StopTimer()
		must(b, os.WriteFile(d.Upper()+"/f", []byte("x"), 0o600))
		b.StartTimer()
		_, err := s.Snapshot("one")
		must(b, err)
	}
}

func BenchmarkFork(b *testing.B) {
	s := newStore(b)
	imported(b, s, "base", benchmarkProject(b, 100))
	start(b, s, "base", "one").Close()
	i := 0
	for b.Loop() {
		d, err := s.Fork("one", "", delta.Options{Name: fmt.Sprint("f", i)})
		must(b, err)
		d.Close()
		i++
	}
}
