package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/testenv"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// many makes a project of small files, a hundred to a directory.
func many(t *testing.T, files int) string {
	t.Helper()
	dir := t.TempDir()
	for i := range files {
		if i%100 == 0 {
			must(t, os.MkdirAll(fmt.Sprintf("%s/%d/%d", dir, i/10_000, i/100), 0o755))
		}
		must(t, os.WriteFile(fmt.Sprintf("%s/%d/%d/%d", dir, i/10_000, i/100, i), fmt.Append(nil, i), 0o644))
	}
	return dir
}

// taken is how long something takes, the middle of several times.
func taken(t *testing.T, times int, do func(i int) error) time.Duration {
	t.Helper()
	var all []time.Duration
	for i := range times {
		begin := time.Now()
		must(t, do(i))
		all = append(all, time.Since(begin))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// What snapshots and forks take is told, and must not depend on how many files
// there are; the memory of an import must not either.
func TestCodebaseOfAMillionFiles(t *testing.T) {
	testenv.Requires(t, testenv.Long, testenv.NoRace)
	for _, files := range []int{1000, 1_000_000} {
		dir := many(t, files)
		s := newStore(t)
		peak := uint64(0)
		begin := time.Now()
		_, err := s.ImportDirectory(dir, ImportOptions{Name: "base", Progress: func(n, _ int64) {
			if n%1000 == 0 {
				peak = max(peak, heap())
			}
		}})
		must(t, err)
		elapsed := time.Since(begin)
		if peak > 64<<20 {
			t.Errorf("%d files: %d MB of memory", files, peak>>20)
		}
		start(t, s, "base", "one").Close()
		snapshot := taken(t, 15, func(i int) error {
			d, err := s.Store.Open("one", delta.Write)
			must(t, err)
			write(t, filepath.Join(d.Upper(), fmt.Sprint(i)), "x")
			d.Close()
			_, err = s.Snapshot("one")
			return err
		})
		fork := taken(t, 15, func(i int) error {
			d, err := s.Fork("one", "s1", delta.Options{Name: fmt.Sprint("fork", i)})
			if err == nil {
				d.Close()
			}
			return err
		})
		t.Logf("%d files: import %s (%.0f files/s), at most %d MB of memory; snapshot %s; fork %s",
			files, elapsed.Round(time.Millisecond), float64(files)/elapsed.Seconds(), peak>>20, snapshot.Round(time.Microsecond), fork.Round(time.Microsecond))
	}
}
