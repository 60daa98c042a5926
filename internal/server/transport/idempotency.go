package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	rpc "github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
)

const (
	keyHeader   = "Idempotency-Key"
	keyLength   = 255
	keyLifetime = 24 * time.Hour
	// keptAnswer is the largest answer that is kept. Only that of a command with
	// much output is larger.
	keptAnswer = 4 << 20
	// keptOutput is the most that is kept in memory of what commands answered, and
	// keptCommands of how many it is known that they were run.
	keptOutput   = 64 << 20
	keptCommands = 10_000
)

// idempotent gives a request that was sent before, with the same key by the same
// owner, the answer that it got then. Failures are not kept: the same request may
// be sent again until it succeeds. One that an earlier server began and did not
// end is done again under the names that it had then, so that what was made is
// found; a command that may have run is not.
func (t *Transport) idempotent() connect.Interceptor {
	requests := &requests{store: t.config.Requests, journal: t.journal, running: map[string]chan struct{}{}}
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			key := req.Header().Get(keyHeader)
			m := methods[req.Spec().Procedure]
			if key == "" || m.replay == nil || t.config.Requests == nil {
				return next(ctx, req)
			}
			if len(key) > keyLength {
				return nil, problem.Invalid("idempotency_key", "at most %d bytes", keyLength)
			}
			return requests.once(ctx, m, key, req, next)
		}
	})
}

// requests are those with a key that were answered, in the store, and those that
// are being answered.
type requests struct {
	store   store.Store
	journal *journal

	mu      sync.Mutex
	running map[string]chan struct{} // closed when the request is over
	outputs outputs
}

// kept is what is stored of a request.
type kept struct {
	Fingerprint []byte `json:"fingerprint"` // of the request
	Answer      []byte `json:"answer"`
	TooLarge    bool   `json:"tooLarge,omitempty"` // the answer is not kept
}

func (q *requests) once(ctx context.Context, m method, key string, req connect.AnyRequest, next connect.UnaryFunc) (connect.AnyResponse, error) {
	owner := caller.From(ctx).Owner
	id := digest(owner, req.Spec().Procedure, key)
	fingerprint, err := fingerprint(req)
	if err != nil {
		return nil, err
	}
	leave, err := q.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer leave()
	isFleeting := fleeting[req.Spec().Procedure]
	earlier, err := q.load(ctx, id, isFleeting)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		return earlier.answer(m, fingerprint)
	}
	seed, again, err := q.journal.begin(id)
	if err != nil {
		return nil, err
	}
	if again && isFleeting {
		return nil, problem.New(connect.CodeAborted, "outcome_unknown", errors.New("the server ended while it did this request, and what became of it is not known"),
			problem.Remedy("look what the command has done; to run it again, use a new idempotency key"))
	}
	res, err := next(once.With(ctx, seed, again), req)
	if again && removing[req.Spec().Procedure] && connect.CodeOf(err) == connect.CodeNotFound {
		res, err = m.replay(nil) // it was removed then
	}
	if err == nil {
		err = q.keep(ctx, id, owner, fingerprint, res, isFleeting)
	}
	if over := q.journal.end(id, isFleeting && err == nil); over != nil {
		return nil, errors.Join(err, over)
	}
	return res, err
}

// outputs are the answers of the latest commands. To write each to the disk would
// take longer than many a command; what the journal has of them is enough for the
// next server not to run one again.
type outputs struct {
	byID  map[string]*kept
	order []string // the oldest first
	gone  int      // of order, whose answers are not kept any more
	size  int
}

// add keeps an answer, and forgets old ones: first what they were, then that there
// was one.
func (o *outputs) add(id string, k *kept) {
	if o.byID == nil {
		o.byID = map[string]*kept{}
	}
	o.byID[id], o.order, o.size = k, append(o.order, id), o.size+len(k.Answer)
	for ; o.size > keptOutput; o.gone++ {
		old := o.byID[o.order[o.gone]]
		o.size -= len(old.Answer)
		old.Answer, old.TooLarge = nil, true
	}
	if len(o.order) > keptCommands {
		oldest := o.byID[o.order[0]]
		o.size -= len(oldest.Answer)
		delete(o.byID, o.order[0])
		o.order, o.gone = o.order[1:], max(o.gone-1, 0)
	}
}

// fleeting are commands whose output is nowhere but in the answer.
var fleeting = map[string]bool{rpc.ExecServiceRunExecProcedure: true, rpc.SessionServiceRunSessionProcedure: true}

// removing are requests after which something is not there.
var removing = map[string]bool{
	rpc.CodebaseServiceDeleteCodebaseProcedure: true,
	rpc.SandboxServiceDestroySandboxProcedure:  true,
	rpc.SandboxServiceDeleteSnapshotProcedure:  true,
	rpc.SessionServiceCloseSessionProcedure:    true,
	rpc.FileServiceRemoveFileProcedure:         true,
}

// enter waits until no other request with this key is being answered.
func (q *requests) enter(ctx context.Context, id string) (leave func(), err error) {
	for {
		q.mu.Lock()
		other, busy := q.running[id]
		if !busy {
			over := make(chan struct{})
			q.running[id] = over
			q.mu.Unlock()
			return func() {
				q.mu.Lock()
				delete(q.running, id)
				q.mu.Unlock()
				close(over)
			}, nil
		}
		q.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *requests) load(ctx context.Context, id string, isFleeting bool) (*kept, error) {
	if isFleeting {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.outputs.byID[id], nil
	}
	r, err := q.store.Get(ctx, store.Requests, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !r.Expires.After(time.Now()) {
		return nil, q.store.Commit(ctx, store.Delete(r))
	}
	var k kept
	return &k, json.Unmarshal(r.Data, &k)
}

func (q *requests) keep(ctx context.Context, id, owner string, fingerprint []byte, res connect.AnyResponse, isFleeting bool) error {
	message, ok := res.Any().(proto.Message)
	if !ok {
		return fmt.Errorf("an answer of type %T is no message", res.Any())
	}
	answer, err := proto.Marshal(message)
	if err != nil {
		return err
	}
	k := kept{Fingerprint: fingerprint, Answer: answer}
	if len(answer) > keptAnswer {
		k.Answer, k.TooLarge = nil, true
	}
	if isFleeting {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.outputs.add(id, &k)
		return nil
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	return q.store.Commit(ctx, store.Put(&store.Record{Kind: store.Requests, ID: id, Owner: owner, Created: now, Expires: now.Add(keyLifetime), Data: data}))
}

// forget removes the answers whose time is over, until there are none.
func (t *Transport) forget(ctx context.Context) error {
	for {
		page, err := t.config.Requests.List(ctx, store.Query{Kind: store.Requests, ExpiredBy: time.Now(), Limit: 500})
		if err != nil || len(page.Records) == 0 {
			return err
		}
		var gone []store.Change
		for _, r := range page.Records {
			gone = append(gone, store.Delete(r))
		}
		err = t.config.Requests.Commit(ctx, gone...)
		// A key that is used again has its record replaced: look again.
		if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
}

// forgetEvery is how often that is done.
const forgetEvery = 10 * time.Minute

// forgetExpired does it until the context is done.
func (t *Transport) forgetExpired(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for t.config.Requests != nil {
		if err := t.forget(ctx); err != nil && ctx.Err() == nil {
			t.config.Log.Error("answers that are no longer needed stay", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *kept) answer(m method, fingerprint []byte) (connect.AnyResponse, error) {
	if !bytes.Equal(k.Fingerprint, fingerprint) {
		return nil, problem.New(connect.CodeInvalidArgument, "idempotency_key_reused",
			errors.New("another request had this idempotency key"), problem.Remedy("use a new key for every new request"))
	}
	if k.TooLarge {
		return nil, problem.New(connect.CodeFailedPrecondition, "answer_not_kept",
			errors.New("the request was done before, and its answer is too large to be kept"),
			problem.Remedy("start such a command with StartExec, and read its output with AttachExec"))
	}
	res, err := m.replay(k.Answer)
	if err == nil {
		res.Header().Set("Idempotency-Replayed", "true")
	}
	return res, err
}

func fingerprint(req connect.AnyRequest) ([]byte, error) {
	message, ok := req.Any().(proto.Message)
	if !ok {
		return nil, fmt.Errorf("a request of type %T is no message", req.Any())
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return sum[:], nil
}

// digest joins texts to an id that no other texts have.
func digest(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil))
}
