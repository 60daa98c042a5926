package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/event"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// feed is what happens in a sandbox, for who watches it. There is one once
// somebody has begun to: nothing is collected for nobody.
type feed struct {
	mu    sync.Mutex
	first int64         // number of the first that is kept
	kept  []happening   // the latest
	more  chan struct{} // closed with the next
	over  bool          // the sandbox was destroyed
	seen  map[int]int   // events of the keeper that were taken, with their counts
	due   bool          // the keeper is about to be asked
}

// happening is an event, or a state that a sandbox is in now.
type happening struct {
	event.Event
	state, reason string
}

const (
	// mostKept is how many events are kept for who comes back.
	mostKept = 1000
	// gathered is how long events are waited for after the first, so that one who
	// makes many does not make as many requests.
	gathered = 20 * time.Millisecond
	// stateKind is the kind of an event that is about the sandbox itself.
	stateKind = "state"
)

// add tells everybody who watches.
func (f *feed) add(list ...happening) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = append(f.kept, list...)
	if n := len(f.kept) - mostKept; n > 0 {
		f.kept, f.first = slices.Clone(f.kept[n:]), f.first+int64(n)
	}
	f.wake()
}

// wake lets those who wait look again. The mutex is held.
func (f *feed) wake() {
	close(f.more)
	f.more = make(chan struct{})
}

// end says that nothing will come any more.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	f.wake()
}

// after returns what came from a number on, the number that comes next, and what
// is closed when there is more; nil if there never will be.
func (f *feed) after(number int64) (list []happening, next int64, more <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = f.first + int64(len(f.kept))
	if from := max(number-f.first, 0); from < int64(len(f.kept)) {
		list = slices.Clone(f.kept[from:])
	}
	if f.over {
		return list, next, nil
	}
	return list, next, f.more
}

// watch finds or makes the feed of a sandbox.
func (s *Server) watch(id string) *feed {
	s.mu.Lock()
	f := s.feeds[id]
	isNew := f == nil
	if isNew {
		f = &feed{more: make(chan struct{}), seen: make(map[int]int)}
		if s.feeds == nil {
			s.feeds = make(map[string]*feed)
		}
		s.feeds[id] = f
	}
	s.mu.Unlock()
	if isNew {
		_, _ = s.fresh(id, f) // what was before nobody has asked for
	}
	return f
}

// fresh asks the keeper for events that were not taken yet.
func (s *Server) fresh(id string, f *feed) (list []happening, err error) {
	s.mu.Lock()
	remote := s.remote
	s.mu.Unlock()
	if remote == nil {
		return nil, nil
	}
	events, err := remote.Events(id)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[int]int, len(events))
	for _, e := range events {
		count := max(e.Event.Count, 1)
		seen[e.Number] = count
		if count != f.seen[e.Number] {
			list = append(list, happening{Event: e.Event})
		}
	}
	f.seen = seen
	return list, nil
}

// happened is called when the keeper has events of a sandbox.
func (s *Server) happened(id string) {
	s.mu.Lock()
	f := s.feeds[id]
	s.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.due {
		return
	}
	f.due = true
	time.AfterFunc(gathered, func() {
		s.behind(func(context.Context) {
			f.mu.Lock()
			f.due = false
			f.mu.Unlock()
			list, err := s.fresh(id, f)
			if err != nil && !errors.Is(err, keeper.ErrMissing) && !errors.Is(err, keeper.ErrGone) {
				s.log.Warn("events of a sandbox were lost", "sandbox", id, "error", err)
			}
			f.add(list...)
		})
	})
}

// emit tells who watches a sandbox of something.
func (s *Server) emit(id string, h happening) {
	s.mu.Lock()
	f := s.feeds[id]
	s.mu.Unlock()
	if f == nil {
		return
	}
	h.Event = *h.Bounded()
	h.Version, h.Time, h.Sandbox = event.Version, time.Now(), id
	f.add(h)
}

// ending is the event of a command that has ended.
func ending(e *execution) happening {
	h := happening{Event: event.Event{Kind: event.Exit, Argv: e.argv, Signal: e.exit.GetSignal()}}
	if h.Signal == "" {
		code := int(e.exit.GetCode())
		h.Status = &code
	}
	return h
}

// renew lets the events of a sandbox that was started be counted from the
// beginning.
func (s *Server) renew(id string) {
	s.mu.Lock()
	f := s.feeds[id]
	s.mu.Unlock()
	if f != nil {
		f.mu.Lock()
		f.seen = make(map[int]int)
		f.mu.Unlock()
	}
}

// emitState tells who watches a sandbox what has become of it.
func (s *Server) emitState(sb *baileyv1.Sandbox) {
	s.emit(sb.GetId(), happening{Event: event.Event{Kind: stateKind}, state: stateName(sb.GetState()), reason: sb.GetStateReason()})
}

// endFeed tells who watches a sandbox that it was destroyed.
func (s *Server) endFeed(id string) {
	s.emit(id, happening{Event: event.Event{Kind: stateKind}, state: "destroyed"})
	s.mu.Lock()
	f := s.feeds[id]
	delete(s.feeds, id)
	s.mu.Unlock()
	if f != nil {
		f.end()
	}
}

// WatchEvents implements the API.
func (s *Server) WatchEvents(ctx context.Context, r *baileyv1.WatchEventsRequest, to *connect.ServerStream[baileyv1.Event]) error {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return err
	}
	if _, err := s.sandbox(ctx, r.GetSandboxId()); err != nil {
		return err
	}
	for _, kind := range r.GetKinds() {
		if kind != stateKind && !slices.Contains(event.Kinds(), event.Kind(kind)) {
			return problem.Invalid("kinds", "there is no kind %q", kind)
		}
	}
	f := s.watch(r.GetSandboxId())
	at, err := s.place(f, r.GetAfter())
	if err != nil {
		return err
	}
	if err := to.Send(nil); err != nil { // so that the client knows that it watches
		return err
	}
	for {
		list, next, more := f.after(at)
		for i := range list {
			if err := s.sendEvent(&list[i], next-int64(len(list))+int64(i), r, to); err != nil {
				return err
			}
		}
		if at = next; more == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// place is where a client goes on. A cursor says of which server it is: another
// one begins with what it has.
func (s *Server) place(f *feed, cursor string) (int64, error) {
	if cursor == "" {
		_, next, _ := f.after(0)
		return next, nil
	}
	server, number, ok := strings.Cut(cursor, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 0 {
		return 0, problem.Invalid("after", "%q is no cursor", cursor)
	}
	if server != s.era() {
		return 0, nil
	}
	return n + 1, nil
}

func (s *Server) era() string { return strconv.FormatInt(s.began.UnixNano(), 36) }

func (s *Server) sendEvent(h *happening, number int64, r *baileyv1.WatchEventsRequest, to *connect.ServerStream[baileyv1.Event]) error {
	if len(r.GetKinds()) > 0 && !slices.Contains(r.GetKinds(), string(h.Kind)) {
		return nil
	}
	detail, err := h.detail()
	if err != nil {
		return err
	}
	return to.Send(&baileyv1.Event{
		Cursor: fmt.Sprintf("%s-%d", s.era(), number), Time: timestamppb.New(h.Time), Kind: string(h.Kind),
		SandboxId: r.GetSandboxId(), Detail: detail,
	})
}

// detail is the event as the audit log has it.
func (h *happening) detail() (*structpb.Struct, error) {
	if h.Kind == stateKind {
		fields := map[string]any{"state": h.state}
		if h.reason != "" {
			fields["reason"] = h.reason
		}
		return structpb.NewStruct(fields)
	}
	fields := make(map[string]any)
	if err := json.Unmarshal(h.AppendLine(nil), &fields); err != nil {
		return nil, err
	}
	return structpb.NewStruct(fields)
}
