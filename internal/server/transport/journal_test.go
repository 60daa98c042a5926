package transport

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func mustOpen(t *testing.T, path string) *journal {
	t.Helper()
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func mustBegin(t *testing.T, j *journal, name string, wantAgain bool) []byte {
	t.Helper()
	seed, again, err := j.begin(digest(name))
	if err != nil || again != wantAgain {
		t.Fatalf("%s: again %v, %v", name, again, err)
	}
	return seed
}

func TestJournalKnowsWhatAnEarlierServerBegan(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	j := mustOpen(t, path)
	open, over := mustBegin(t, j, "open", false), mustBegin(t, j, "over", false)
	if err := j.end(digest("over"), false); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each server passes it on to the next
		j = mustOpen(t, path)
		if seed := mustBegin(t, j, "open", true); !bytes.Equal(seed, open) {
			t.Errorf("the seed has changed from %x to %x", open, seed)
		}
	}
	if seed := mustBegin(t, j, "over", false); bytes.Equal(seed, over) {
		t.Error("a request that is over, and its key used anew, has the old seed")
	}
}

func TestJournalForgetsWhatIsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	j := mustOpen(t, path)
	mustBegin(t, j, "open", false)
	for range journalSize / entrySize {
		mustBegin(t, j, "short", false)
		if err := j.end(digest("short"), false); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > journalSize+2*entrySize {
		t.Errorf("%v, %v", info.Size(), err)
	}
	b := j.open[digest("open")]
	b.at = time.Now().Add(-2 * keyLifetime)
	j.open[digest("open")] = b
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	mustBegin(t, mustOpen(t, path), "open", false)
}

func TestJournalWithABrokenEndIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	mustBegin(t, mustOpen(t, path), "open", false)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(data, data[:10]...), 0o600); err != nil {
		t.Fatal(err)
	}
	mustBegin(t, mustOpen(t, path), "open", true)
}

func TestJournalKnowsTheLatestCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	j := mustOpen(t, path)
	run := func(name string) {
		mustBegin(t, j, name, false)
		if err := j.end(digest(name), true); err != nil {
			t.Fatal(err)
		}
	}
	run("first")
	for i := range keptCommands {
		run(strconv.Itoa(i))
	}
	run("0") // whose answer is forgotten, and that runs anew
	next := mustOpen(t, path)
	mustBegin(t, next, "first", false)
	mustBegin(t, next, "1", true)
	mustBegin(t, next, strconv.Itoa(keptCommands-1), true)
}

func TestOutputsAreKeptUpToASize(t *testing.T) {
	var o outputs
	const n = 20
	for i := range n {
		o.add(strconv.Itoa(i), &kept{Answer: make([]byte, keptOutput/10)})
	}
	if o.size > keptOutput || o.byID["0"] == nil || !o.byID["0"].TooLarge || o.byID[strconv.Itoa(n-1)].TooLarge {
		t.Errorf("%d bytes, %d answers", o.size, len(o.byID))
	}
	for i := range keptCommands + 5 {
		o.add("more "+strconv.Itoa(i), &kept{Answer: []byte("a")})
	}
	if len(o.byID) != keptCommands || len(o.order) != keptCommands || o.size != keptCommands || o.gone != 0 {
		t.Errorf("%d answers of %d, %d bytes, %d gone", len(o.byID), len(o.order), o.size, o.gone)
	}
}
