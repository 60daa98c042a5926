// Package storetest has the tests that every store.Store must pass.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/store"
)

// Run runs all of them. Open returns an empty store, which is closed by Run.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"records come back whole", roundTrip},
		{"what is missing is not found", notFound},
		{"an id is taken once", idTaken},
		{"a name is taken once by an owner", nameTaken},
		{"an old revision is a conflict", conflict},
		{"a commit is all or nothing", atomic},
		{"a request is answered once", idempotency},
		{"queries choose", queries},
		{"labels change with the record", labels},
		{"pages miss nothing and repeat nothing", paging},
		{"pages go backwards, too", backwards},
		{"a bad cursor is refused", badCursor},
		{"what expires is found", expiry},
		{"writers at once lose nothing", writers},
		{"readers never see half a commit", readers},
		{"a context that has ended ends a call", ended},
		{"sync answers", synced},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			test.run(t, s)
		})
	}
}

func box(id, owner string) *store.Record {
	return &store.Record{Kind: store.Sandboxes, ID: id, Owner: owner, State: "running"}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func ids(t *testing.T, s store.Store, q store.Query) []string {
	t.Helper()
	page, err := s.List(t.Context(), q)
	must(t, err)
	n, err := s.Count(t.Context(), q)
	must(t, err)
	if q.Limit == 0 && q.After == "" && n != len(page.Records) {
		t.Errorf("%+v: counted %d, listed %d", q, n, len(page.Records))
	}
	list := []string{}
	for _, r := range page.Records {
		list = append(list, r.ID)
	}
	return list
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func roundTrip(t *testing.T, s store.Store) {
	r := &store.Record{
		Kind: store.Codebases, ID: "c1", Owner: "ann", Name: "näme\n", Parent: "p", State: "ready",
		Labels:  map[string]string{"a": "1", "b": ""},
		Created: time.UnixMicro(1_700_000_000_123_456).UTC(), Expires: time.UnixMicro(1_800_000_000_000_001).UTC(),
		Data: []byte{0, 255, '\'', '\n'},
	}
	must(t, s.Commit(t.Context(), store.Put(r)))
	if r.Revision == 0 {
		t.Error("it has no revision")
	}
	got, err := s.Get(t.Context(), store.Codebases, "c1")
	must(t, err)
	if !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, want %+v", got, r)
	}
	bare := &store.Record{Kind: store.Owners, ID: "ann"}
	must(t, s.Commit(t.Context(), store.Put(bare)))
	got, err = s.Get(t.Context(), store.Owners, "ann")
	must(t, err)
	if !got.Created.IsZero() || !got.Expires.IsZero() || got.Labels != nil || len(got.Data) != 0 {
		t.Errorf("got %+v", got)
	}
}

func notFound(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, err := s.Get(ctx, store.Sandboxes, "x")
	wants(t, err, store.ErrNotFound)
	must(t, s.Commit(ctx, store.Put(box("x", "ann"))))
	_, err = s.Get(ctx, store.Codebases, "x") // of another kind
	wants(t, err, store.ErrNotFound)
	r, err := s.Get(ctx, store.Sandboxes, "x")
	must(t, err)
	must(t, s.Commit(ctx, store.Delete(r)))
	wants(t, s.Commit(ctx, store.Put(r)), store.ErrNotFound)
	wants(t, s.Commit(ctx, store.Delete(r)), store.ErrNotFound)
	must(t, s.Commit(ctx, store.Delete(box("x", "")))) // whatever it is
}

func idTaken(t *testing.T, s store.Store) {
	must(t, s.Commit(t.Context(), store.Put(box("x", "ann"))))
	wants(t, s.Commit(t.Context(), store.Put(box("x", "bob"))), store.ErrExists)
	got, err := s.Get(t.Context(), store.Sandboxes, "x")
	must(t, err)
	if got.Owner != "ann" {
		t.Errorf("it belongs to %s now", got.Owner)
	}
	must(t, s.Commit(t.Context(), store.Put(&store.Record{Kind: store.Codebases, ID: "x"})))
}

func nameTaken(t *testing.T, s store.Store) {
	named := func(id, owner, name string) *store.Record {
		r := box(id, owner)
		r.Name = name
		return r
	}
	ctx := t.Context()
	first := named("1", "ann", "web")
	must(t, s.Commit(ctx, store.Put(first)))
	wants(t, s.Commit(ctx, store.Put(named("2", "ann", "web"))), store.ErrExists)
	must(t, s.Commit(ctx, store.Put(named("3", "bob", "web"))))
	must(t, s.Commit(ctx, store.Put(named("4", "ann", "")), store.Put(named("5", "ann", ""))))
	other := named("6", "ann", "db")
	must(t, s.Commit(ctx, store.Put(other)))
	other.Name = "web"
	wants(t, s.Commit(ctx, store.Put(other)), store.ErrExists)
	must(t, s.Commit(ctx, store.Delete(first)))
	must(t, s.Commit(ctx, store.Put(named("7", "ann", "web"))))
}

func conflict(t *testing.T, s store.Store) {
	ctx := t.Context()
	must(t, s.Commit(ctx, store.Put(box("x", "ann"))))
	one, err := s.Get(ctx, store.Sandboxes, "x")
	must(t, err)
	two, err := s.Get(ctx, store.Sandboxes, "x")
	must(t, err)
	one.State = "stopped"
	must(t, s.Commit(ctx, store.Put(one)))
	two.State = "failed"
	wants(t, s.Commit(ctx, store.Put(two)), store.ErrConflict)
	wants(t, s.Commit(ctx, store.Delete(two)), store.ErrConflict)
	one.State = "again" // it has the new revision
	must(t, s.Commit(ctx, store.Put(one)))
	got, err := s.Get(ctx, store.Sandboxes, "x")
	must(t, err)
	if got.State != "again" || got.Revision != one.Revision {
		t.Errorf("got %+v", got)
	}
}

func atomic(t *testing.T, s store.Store) {
	ctx := t.Context()
	must(t, s.Commit(ctx, store.Put(box("x", "ann"))))
	fresh := box("y", "ann")
	wants(t, s.Commit(ctx, store.Put(fresh), store.Delete(box("x", "")), store.Put(box("y", "bob"))), store.ErrExists)
	same(t, ids(t, s, store.Query{Kind: store.Sandboxes}), []string{"x"})
	if fresh.Revision != 0 {
		t.Error("a record that was not stored has a revision")
	}
	must(t, s.Commit(ctx)) // of nothing
	if err := s.Commit(ctx, store.Put(&store.Record{Kind: store.Owners})); err == nil {
		t.Error("a record without an id was stored")
	}
}

// The answer to a request and what it did are one commit, so that of two that
// are the same only one takes effect.
func idempotency(t *testing.T, s store.Store) {
	var group sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		group.Go(func() {
			results[i] = s.Commit(t.Context(),
				store.Put(&store.Record{Kind: store.Requests, ID: "ann/key-1", Owner: "ann"}),
				store.Put(box(fmt.Sprint("box-", i), "ann")))
		})
	}
	group.Wait()
	done := 0
	for _, err := range results {
		if err == nil {
			done++
			continue
		}
		wants(t, err, store.ErrExists)
	}
	if n := len(ids(t, s, store.Query{Kind: store.Sandboxes})); done != 1 || n != 1 {
		t.Errorf("%d requests were carried out, and %d sandboxes are there", done, n)
	}
}

func fill(t *testing.T, s store.Store) {
	t.Helper()
	for _, r := range []*store.Record{
		{ID: "1", Owner: "ann", State: "running", Parent: "c1", Labels: map[string]string{"env": "ci", "team": "a"}},
		{ID: "2", Owner: "ann", State: "stopped", Parent: "c2", Labels: map[string]string{"env": "ci"}},
		{ID: "3", Owner: "bob", State: "running", Parent: "c1", Labels: map[string]string{"env": "ci", "team": "a"}},
		{ID: "4", Owner: "ann", State: "failed", Name: "web", Labels: map[string]string{"env": "prod%_'"}},
	} {
		r.Kind = store.Sandboxes
		must(t, s.Commit(t.Context(), store.Put(r)))
	}
}

func queries(t *testing.T, s store.Store) {
	fill(t, s)
	for _, test := range []struct {
		query store.Query
		want  []string
	}{
		{store.Query{}, []string{"1", "2", "3", "4"}},
		{store.Query{Owner: "ann"}, []string{"1", "2", "4"}},
		{store.Query{Owner: "nobody"}, []string{}},
		{store.Query{Parent: "c1"}, []string{"1", "3"}},
		{store.Query{Name: "web"}, []string{"4"}},
		{store.Query{States: []string{"running", "failed"}}, []string{"1", "3", "4"}},
		{store.Query{Labels: map[string]string{"env": "ci"}}, []string{"1", "2", "3"}},
		{store.Query{Labels: map[string]string{"env": "ci", "team": "a"}, Owner: "ann"}, []string{"1"}},
		{store.Query{Labels: map[string]string{"env": "prod%_'"}}, []string{"4"}},
		{store.Query{Labels: map[string]string{"env": ""}}, []string{}},
		{store.Query{Has: []string{"env"}, Newest: true}, []string{"4", "3", "2", "1"}},
		{store.Query{Has: []string{"env", "team"}}, []string{"1", "3"}},
		{store.Query{Labels: map[string]string{"nothing": "ci"}}, []string{}},
	} {
		test.query.Kind = store.Sandboxes
		same(t, ids(t, s, test.query), test.want)
	}
	same(t, ids(t, s, store.Query{Kind: store.Codebases}), []string{})
}

func labels(t *testing.T, s store.Store) {
	fill(t, s)
	ctx := t.Context()
	ci := store.Query{Kind: store.Sandboxes, Labels: map[string]string{"env": "ci"}}
	_, err := store.Update(ctx, s, store.Sandboxes, "1", func(r *store.Record) error {
		r.Labels = map[string]string{"env": "dev"}
		return nil
	})
	must(t, err)
	same(t, ids(t, s, ci), []string{"2", "3"})
	must(t, s.Commit(ctx, store.Delete(box("2", ""))))
	same(t, ids(t, s, ci), []string{"3"})
	again := box("2", "ann")
	must(t, s.Commit(ctx, store.Put(again)))
	same(t, ids(t, s, ci), []string{"3"})
}

func paging(t *testing.T, s store.Store) {
	ctx := t.Context()
	var want []string
	for i := range 25 {
		r := box(fmt.Sprintf("%02d", i), "ann")
		must(t, s.Commit(ctx, store.Put(r), store.Put(box(fmt.Sprintf("other-%d", i), "bob"))))
		want = append(want, r.ID)
	}
	q := store.Query{Kind: store.Sandboxes, Owner: "ann", Limit: 10}
	var got []string
	for {
		page, err := s.List(ctx, q)
		must(t, err)
		for _, r := range page.Records {
			got = append(got, r.ID)
		}
		if page.Next == "" {
			break
		}
		// What is removed and added between pages disturbs nothing else.
		last := page.Records[len(page.Records)-1]
		must(t, s.Commit(ctx, store.Delete(last)))
		q.After = page.Next
	}
	same(t, got, want)
	for n, hasNext := range map[int]bool{22: true, 23: false, 24: false} { // two are gone
		page, err := s.List(ctx, store.Query{Kind: store.Sandboxes, Owner: "ann", Limit: n})
		must(t, err)
		if (page.Next != "") != hasNext {
			t.Errorf("a page of %d of 23: next is %q", n, page.Next)
		}
	}
}

// backwards pages from the newest on; what is added meanwhile is not part of it.
func backwards(t *testing.T, s store.Store) {
	ctx := t.Context()
	for i := range 5 {
		must(t, s.Commit(ctx, store.Put(box(fmt.Sprint(i), "ann"))))
	}
	q := store.Query{Kind: store.Sandboxes, Newest: true, Limit: 2}
	var got []string
	for {
		page, err := s.List(ctx, q)
		must(t, err)
		for _, r := range page.Records {
			got = append(got, r.ID)
		}
		if page.Next == "" {
			break
		}
		must(t, s.Commit(ctx, store.Put(box("new-"+page.Next, "ann"))))
		q.After = page.Next
	}
	same(t, got, []string{"4", "3", "2", "1", "0"})
}

func badCursor(t *testing.T, s store.Store) {
	for _, after := range []string{"!", "a b", "-", "zzz", "1", "zzzzzzzzzzzzzzzzzzzzzzzz"} {
		_, err := s.List(t.Context(), store.Query{Kind: store.Sandboxes, After: after, Limit: 1})
		wants(t, err, store.ErrCursor)
	}
}

func expiry(t *testing.T, s store.Store) {
	now := time.Now()
	for i, d := range []time.Duration{-time.Hour, 0, time.Hour} {
		r := box(fmt.Sprint(i), "ann")
		r.Expires = now.Add(d)
		must(t, s.Commit(t.Context(), store.Put(r)))
	}
	must(t, s.Commit(t.Context(), store.Put(box("never", "ann"))))
	same(t, ids(t, s, store.Query{Kind: store.Sandboxes, ExpiredBy: now}), []string{"0", "1"})
}

func writers(t *testing.T, s store.Store) {
	ctx := t.Context()
	const each, workers = 20, 6
	must(t, s.Commit(ctx, store.Put(&store.Record{Kind: store.Owners, ID: "ann", Data: []byte{0}})))
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range each {
				_, err := store.Update(ctx, s, store.Owners, "ann", func(r *store.Record) error {
					r.Data[0]++
					return nil
				}, store.Put(box(fmt.Sprintf("%d-%d", w, i), "ann")))
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	r, err := s.Get(ctx, store.Owners, "ann")
	must(t, err)
	if n := len(ids(t, s, store.Query{Kind: store.Sandboxes})); int(r.Data[0]) != each*workers || n != each*workers {
		t.Errorf("counted %d, and %d records are there, of %d", r.Data[0], n, each*workers)
	}
}

func readers(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		for i := range 40 {
			a, b := box(fmt.Sprintf("a%d", i), "ann"), box(fmt.Sprintf("b%d", i), "ann")
			if err := s.Commit(t.Context(), store.Put(a), store.Put(b)); err != nil {
				t.Error(err)
			}
		}
	})
	for ctx.Err() == nil {
		page, err := s.List(t.Context(), store.Query{Kind: store.Sandboxes})
		must(t, err)
		if len(page.Records)%2 != 0 {
			t.Fatalf("%d records", len(page.Records))
		}
	}
	group.Wait()
}

func ended(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wants(t, s.Commit(ctx, store.Put(box("x", "ann"))), context.Canceled)
	same(t, ids(t, s, store.Query{Kind: store.Sandboxes}), []string{})
}

func synced(t *testing.T, s store.Store) {
	must(t, s.Commit(t.Context(), store.Put(box("x", "ann"))))
	must(t, s.Sync(t.Context()))
	same(t, ids(t, s, store.Query{Kind: store.Sandboxes}), []string{"x"})
}
