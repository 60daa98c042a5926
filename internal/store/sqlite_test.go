package store_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/store/storetest"
)

// crashVariable makes the test program a writer that is meant to be killed.
const crashVariable = "BAILEY_TEST_STORE"

func TestMain(m *testing.M) {
	if file := os.Getenv(crashVariable); file != "" {
		fmt.Fprintln(os.Stderr, writeForEver(file))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func open(t *testing.T, file string) *store.DB {
	t.Helper()
	s, err := store.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSQLiteIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "db")) })
}

// A file name with characters that mean something in a URL is a file name.
func TestAnyNameIsAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a?mode=memory&b#c%20d")
	if err := open(t, file).Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("mode %v, %d bytes", info.Mode(), info.Size())
	}
}

func TestDatabaseOfANewerVersionIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	if err := open(t, file).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), file); err == nil || !strings.Contains(err.Error(), "version 1000") {
		t.Errorf("got %v", err)
	}
}

// writeForEver commits pairs of records, and says which are committed.
func writeForEver(file string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, file)
	if err != nil {
		return err
	}
	page, err := s.List(ctx, store.Query{Kind: store.Sandboxes})
	if err != nil {
		return err
	}
	for i := len(page.Records); ; i++ {
		id := strconv.Itoa(i)
		err := s.Commit(ctx,
			store.Put(&store.Record{Kind: store.Sandboxes, ID: id, Labels: map[string]string{"n": id}, Data: make([]byte, 10_000)}),
			store.Put(&store.Record{Kind: store.Codebases, ID: id}))
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, id)
	}
}

// Whatever was acknowledged is there after kill -9, and nothing is half there.
func TestKilledWriterLosesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	last := -1
	for range 5 {
		last = max(last, killWriter(t, file, 1+rand.IntN(60)))
		s := open(t, file)
		counts := [2]int{}
		for i, kind := range []store.Kind{store.Sandboxes, store.Codebases} {
			n, err := s.Count(t.Context(), store.Query{Kind: kind})
			if err != nil {
				t.Fatal(err)
			}
			counts[i] = n
		}
		if counts[0] != counts[1] || counts[0] <= last {
			t.Errorf("%d and %d records, and %d was acknowledged", counts[0], counts[1], last)
		}
		if n, err := s.Count(t.Context(), store.Query{Kind: store.Sandboxes, Labels: map[string]string{"n": strconv.Itoa(last)}}); n != 1 || err != nil {
			t.Errorf("by label %d: %d, %v", last, n, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killWriter kills a writer after it has acknowledged some commits, and returns
// the last one.
func killWriter(t *testing.T, file string, after int) (last int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashVariable+"="+file)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if n == after {
			_ = cmd.Process.Kill() // the rest of what it acknowledged is still read
		}
	}
	_ = cmd.Wait() // it was killed
	if stderr.Len() > 0 {
		t.Errorf("the writer: %s", stderr.String())
	}
	return last
}

func BenchmarkCommit(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		r := &store.Record{Kind: store.Sandboxes, ID: strconv.Itoa(i), Owner: "ann", Labels: map[string]string{"a": "b"}, Data: make([]byte, 500)}
		if err := s.Commit(b.Context(), store.Put(r)); err != nil {
			b.Fatal(err)
		}
	}
}
