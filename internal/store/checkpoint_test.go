package store

import (
	"os"
	"strconv"
	"testing"
	"time"
)

func TestLogIsCopiedWithoutAnybodyAsking(t *testing.T) {
	file := t.TempDir() + "/x.db"
	d, err := Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	size := func() int64 {
		st, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	for i := range checkpointEvery {
		if err := d.Commit(t.Context(), Put(&Record{Kind: Requests, ID: strconv.Itoa(i), Data: make([]byte, 1024)})); err != nil {
			t.Fatal(err)
		}
	}
	for size() < before+checkpointEvery*1024 { // it ends by the test's time limit otherwise
		time.Sleep(time.Millisecond)
	}
}

func TestLogBeginsAgainAfterItWasCopied(t *testing.T) {
	d, err := Open(t.Context(), t.TempDir()+"/x.db")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	commit := func(id string) {
		t.Helper()
		if err := d.Commit(t.Context(), Put(&Record{Kind: Requests, ID: id, Data: make([]byte, 64<<10)})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		commit(strconv.Itoa(i))
	}
	long, err := checkpoint(t.Context(), d.log.own, "PASSIVE")
	if err != nil {
		t.Fatal(err)
	}
	commit("more")
	if short, err := checkpoint(t.Context(), d.log.own, "PASSIVE"); err != nil || short >= long {
		t.Errorf("the log has %d pages after %d, %v", short, long, err)
	}
}
