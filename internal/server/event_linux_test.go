package server

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
)

// watchEvents begins to watch a sandbox. When it returns, nothing is missed.
func (s *site) watchEvents(who caller.Caller, r *baileyv1.WatchEventsRequest) (*connect.ServerStreamForClient[baileyv1.Event], error) {
	url, client := s.wire(who)
	ctx, end := context.WithCancel(context.Background())
	stream, err := baileyv1connect.NewSandboxServiceClient(client, url).WatchEvents(ctx, r)
	if err != nil {
		end()
		return nil, err
	}
	stream.ResponseHeader() // waits for it
	s.t.Cleanup(func() {
		end()
		_ = stream.Close()
	})
	return stream, nil
}

// until reads events up to one of a kind.
func until(t *testing.T, stream *connect.ServerStreamForClient[baileyv1.Event], kind, want string) *baileyv1.Event {
	t.Helper()
	for stream.Receive() {
		e := stream.Msg()
		if e.GetKind() == kind && strings.Contains(e.GetDetail().String(), want) {
			return e
		}
	}
	t.Fatalf("no event %s with %q: %v", kind, want, stream.Err())
	return nil
}

func TestWatchersAreToldWhatHappens(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{Policy: `{"network": {"allowedDomains": ["a.invalid"]}}`})
	s.asked(id, "before.invalid")
	for denials := int64(0); denials == 0; { // the gate tells of it after it has answered
		stats, err := s.GetStats(ann, &baileyv1.GetStatsRequest{SandboxId: id})
		if err != nil {
			t.Fatal(err)
		}
		denials = stats.GetDenials()
	}
	stream, err := s.watchEvents(annItself, &baileyv1.WatchEventsRequest{SandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	s.run(id, "exit 3")
	first := until(t, stream, "exec", "exit 3")
	if first.GetSandboxId() != id || first.GetTime() == nil || first.GetCursor() == "" {
		t.Errorf("got %v", first)
	}
	exit := until(t, stream, "exit", "status")
	if got := exit.GetDetail().GetFields()["status"].GetNumberValue(); got != 3 {
		t.Errorf("got %v", exit)
	}
	s.asked(id, "denied.invalid")
	denied := until(t, stream, "deny", "")
	if host := denied.GetDetail().GetFields()["host"].GetStringValue(); host != "denied.invalid" {
		t.Errorf("got %v", denied)
	}
	if _, err := s.StopSandbox(ann, &baileyv1.StopSandboxRequest{SandboxId: id, Grace: durationpb.New(0)}); err != nil {
		t.Fatal(err)
	}
	until(t, stream, "state", "stopped")
	if _, err := s.StartSandbox(ann, &baileyv1.StartSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	until(t, stream, "state", "running")
	s.asked(id, "denied.invalid")
	until(t, stream, "deny", "denied.invalid")

	// Another comes back where it was, and wants only some.
	again, err := s.watchEvents(annItself, &baileyv1.WatchEventsRequest{SandboxId: id, After: exit.GetCursor(), Kinds: []string{"deny", "state"}})
	if err != nil {
		t.Fatal(err)
	}
	if !again.Receive() || again.Msg().GetCursor() != denied.GetCursor() {
		t.Errorf("got %v, %v, want %v", again.Msg(), again.Err(), denied)
	}
	if _, err := s.DestroySandbox(ann, &baileyv1.DestroySandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	until(t, again, "state", "destroyed")
	if again.Receive() || again.Err() != nil {
		t.Errorf("after the end: %v, %v", again.Msg(), again.Err())
	}
}

func TestOnlyWhoMayWatches(t *testing.T) {
	s := newSite(t, nil)
	id := s.create(&baileyv1.CreateSandboxRequest{})
	for name, c := range map[string]struct {
		who  caller.Caller
		r    *baileyv1.WatchEventsRequest
		want connect.Code
	}{
		"another owner":  {caller.Caller{Owner: "bob", Scopes: annItself.Scopes}, &baileyv1.WatchEventsRequest{SandboxId: id}, connect.CodeNotFound},
		"without scopes": {caller.Caller{Owner: "ann"}, &baileyv1.WatchEventsRequest{SandboxId: id}, connect.CodePermissionDenied},
		"no such kind":   {annItself, &baileyv1.WatchEventsRequest{SandboxId: id, Kinds: []string{"x"}}, connect.CodeInvalidArgument},
		"no such cursor": {annItself, &baileyv1.WatchEventsRequest{SandboxId: id, After: "x"}, connect.CodeInvalidArgument},
	} {
		stream, err := s.watchEvents(c.who, c.r)
		if err == nil {
			stream.Receive()
			err = stream.Err()
		}
		if connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Arguments of megabytes are not kept a thousand times for who comes back.
func TestEventsThatAreKeptAreBounded(t *testing.T) {
	s := &Server{feeds: map[string]*feed{"sb": {more: make(chan struct{})}}}
	word := strings.Repeat("x", 100_000)
	s.emit("sb", happening{Event: event.Event{Kind: event.Exec, Argv: []string{"true", word, word}}})
	kept, _, _ := s.feeds["sb"].after(0)
	if n := len(strings.Join(kept[0].Argv, "")); n > 50_000 || !kept[0].Truncated || kept[0].Argv[0] != "true" {
		t.Errorf("%d bytes are kept", n)
	}
}
