package transport

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/store"
)

func TestSameKeyIsTheSameRequest(t *testing.T) {
	f := start(t)
	send := func(who, key, body string) (int, string, string) {
		res, answer := f.do(t, "POST", "/v1/sandboxes", body, f.as(who, "Idempotency-Key", key))
		return res.StatusCode, answer, res.Header.Get("Idempotency-Replayed")
	}
	status, first, _ := send("ann", "k1", `{"name":"a"}`)
	if status != 200 {
		t.Fatalf("%d %s", status, first)
	}
	status, second, replayed := send("ann", "k1", `{"name":"a"}`)
	if status != 200 || second != first || replayed != "true" || f.sandboxes.created.Load() != 1 {
		t.Errorf("again: %d %s, %d made; want %s and 1", status, second, f.sandboxes.created.Load(), first)
	}
	if status, answer, _ := send("ann", "k1", `{"name":"b"}`); status != 400 || reasonOf(t, answer) != "idempotency_key_reused" {
		t.Errorf("another request with the key: %d %s", status, answer)
	}
	if status, other, _ := send("bob", "k1", `{"name":"a"}`); status != 200 || other == first {
		t.Errorf("another owner's key: %d %s", status, other)
	}
	if status, answer, _ := send("ann", strings.Repeat("k", 256), `{}`); status != 400 {
		t.Errorf("an endless key: %d %s", status, answer)
	}
}

func TestFailureIsNotKept(t *testing.T) {
	f := start(t)
	f.sandboxes.fail.Store(true)
	header := f.as("ann", "Idempotency-Key", "k")
	if res, answer := f.do(t, "POST", "/v1/sandboxes", `{}`, header); res.StatusCode != http.StatusInternalServerError {
		t.Fatalf("%d %s", res.StatusCode, answer)
	}
	f.sandboxes.fail.Store(false)
	if res, answer := f.do(t, "POST", "/v1/sandboxes", `{}`, header); res.StatusCode != http.StatusOK {
		t.Errorf("the second attempt: %d %s", res.StatusCode, answer)
	}
}

func TestSameKeyAtTheSameTimeIsDoneOnce(t *testing.T) {
	f := start(t)
	f.sandboxes.entered, f.sandboxes.proceed = make(chan struct{}, 8), make(chan struct{})
	var group sync.WaitGroup
	answers := make([]string, 4)
	for i := range answers {
		group.Go(func() {
			_, answers[i] = f.do(t, "POST", "/v1/sandboxes", `{}`, f.as("ann", "Idempotency-Key", "k"))
		})
	}
	<-f.sandboxes.entered
	close(f.sandboxes.proceed)
	group.Wait()
	if n := f.sandboxes.created.Load(); n != 1 {
		t.Errorf("%d sandboxes were made", n)
	}
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("answers differ: %s and %s", answers[0], a)
		}
	}
}

func TestAnswersAreForgottenWhenTheirTimeIsOver(t *testing.T) {
	f := start(t)
	now := time.Now()
	for i := range 600 { // more than are removed at once
		r := &store.Record{Kind: store.Requests, ID: strconv.Itoa(i), Created: now, Expires: now.Add(-time.Second)}
		if err := f.config.Requests.Commit(t.Context(), store.Put(r)); err != nil {
			t.Fatal(err)
		}
	}
	stays := &store.Record{Kind: store.Requests, ID: "stays", Created: now, Expires: now.Add(time.Hour)}
	if err := f.config.Requests.Commit(t.Context(), store.Put(stays)); err != nil {
		t.Fatal(err)
	}
	if err := f.forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	page, err := f.config.Requests.List(t.Context(), store.Query{Kind: store.Requests})
	if err != nil || len(page.Records) != 1 || page.Records[0].ID != "stays" {
		t.Errorf("%d are left, %v", len(page.Records), err)
	}
}
