package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// newID makes a name that nobody can guess.
func newID(prefix string) string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + "-" + once.Text(b[:])
}

// madeID is the name of something that a request makes: if the request has an
// idempotency key, the same whenever it is sent.
func madeID(ctx context.Context, prefix string) string {
	if id := once.Name(ctx, prefix); id != "" {
		return id
	}
	return newID(prefix)
}

// kept is a sandbox as it is stored: what it is, and what it was made from.
type kept struct {
	record  *store.Record
	sandbox *baileyv1.Sandbox
	request *baileyv1.CreateSandboxRequest
	bounded bool // its policy is not that of an administrator
	// asked is the name that its request had for it, if it was made before and has another.
	asked string
	// over is where its files are, if they were made just now.
	over *spec.Overlay
}

// save puts everything into the record.
func (k *kept) save() error {
	data, err := encode(k.sandbox, k.request, wrapperspb.Bool(k.bounded), wrapperspb.String(k.asked))
	if err != nil {
		return err
	}
	s := k.sandbox
	k.record.Data, k.record.State, k.record.Labels = data, stateName(s.GetState()), s.GetLabels()
	k.record.Parent, k.record.Owner = s.GetCodebaseId(), s.GetOwner()
	k.record.Created = s.GetCreateTime().AsTime()
	if s.GetExpireTime() != nil {
		k.record.Expires = s.GetExpireTime().AsTime()
	}
	return nil
}

func load(r *store.Record) (*kept, error) {
	k := &kept{record: r, sandbox: &baileyv1.Sandbox{}, request: &baileyv1.CreateSandboxRequest{}}
	bounded, asked := &wrapperspb.BoolValue{}, &wrapperspb.StringValue{}
	err := decode(r.Data, k.sandbox, k.request, bounded, asked)
	if errors.Is(err, io.EOF) && k.sandbox.GetId() != "" {
		err = nil // it is of a version that kept less
	}
	k.bounded, k.asked = bounded.GetValue(), asked.GetValue()
	return k, legible("sandbox", r, err)
}

// legible is the answer about a record that cannot be read. Others are not concerned:
// the server starts, and lists the rest.
func legible(noun string, r *store.Record, err error) error {
	if err == nil {
		return nil
	}
	return problem.New(connect.CodeDataLoss, "record_unreadable", fmt.Errorf("what is stored of the %s %q cannot be read: %w", noun, r.ID, err),
		problem.About(noun+"_id", r.ID), problem.Remedy("destroy it and make it again; its files stay in the server's directory until then"))
}

// setAside says that a record is passed over.
func (s *Server) setAside(err error) {
	s.log.Error("a record is left aside", "error", err, "remedy", problem.Of(err).GetRemedy())
}

// encode writes messages one after the other.
func encode(messages ...proto.Message) ([]byte, error) {
	var b bytes.Buffer
	for _, m := range messages {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// decode reads what encode has written, however long it is.
func decode(data []byte, messages ...proto.Message) error {
	r, o := bytes.NewReader(data), protodelim.UnmarshalOptions{MaxSize: -1}
	for _, m := range messages {
		if err := o.UnmarshalFrom(r, m); err != nil {
			return err
		}
	}
	return nil
}

// stateName is what a state is called in the store.
func stateName(s baileyv1.SandboxState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SANDBOX_STATE_"))
}

// sandbox finds a sandbox of the caller's.
func (s *Server) sandbox(ctx context.Context, id string) (*kept, error) {
	r, err := s.find(ctx, store.Sandboxes, "sandbox", id)
	if err != nil {
		return nil, err
	}
	return load(r)
}

// find finds a record of the caller's.
func (s *Server) find(ctx context.Context, kind store.Kind, noun, id string) (*store.Record, error) {
	if id == "" {
		return nil, problem.Invalid(noun+"_id", "it is missing")
	}
	r, err := s.store.Get(ctx, kind, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem.NotFound(noun, id)
	}
	if err != nil {
		return nil, err
	}
	if !caller.From(ctx).Sees(r.Owner) {
		return nil, problem.NotFound(noun, id)
	}
	return r, nil
}

// change changes a stored sandbox, again if somebody else was faster.
func (s *Server) change(ctx context.Context, id string, f func(*baileyv1.Sandbox) error) (*kept, error) {
	var k *kept
	_, err := store.Update(ctx, s.store, store.Sandboxes, id, func(r *store.Record) (err error) {
		if k, err = load(r); err != nil {
			return err
		}
		if err := f(k.sandbox); err != nil {
			return err
		}
		return k.save()
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, problem.NotFound("sandbox", id)
	}
	return k, err
}

// page reads the paging of a request.
func page(q *store.Query, size int32, token string) (err error) {
	q.Newest, q.After = true, token
	q.Limit, err = pageSize(size, 100, 1000)
	return err
}

// pageSize is how many entries an answer has: as many as asked for, but not more than
// most, or usual if that is not said.
func pageSize(size int32, usual, most int) (int, error) {
	switch {
	case size < 0:
		return 0, problem.Invalid("page_size", "%d is negative", size)
	case size == 0:
		return usual, nil
	}
	return min(int(size), most), nil
}

// list reads records of the caller's.
func (s *Server) list(ctx context.Context, q store.Query) (*store.Page, error) {
	who := caller.From(ctx)
	if !who.May(caller.Admin) {
		q.Owner = who.Owner
		if q.Owner == "" {
			return &store.Page{}, nil
		}
	}
	p, err := s.store.List(ctx, q)
	if errors.Is(err, store.ErrCursor) {
		return nil, problem.Invalid("page_token", "%w", err)
	}
	return p, err
}

// chooseLabels reads conditions on labels.
func chooseLabels(q *store.Query, conditions []string) error {
	for _, c := range conditions {
		name, value, exact := strings.Cut(c, "=")
		if name == "" {
			return problem.Invalid("labels", "%q has no name; write key=value, or key", c)
		}
		if !exact {
			q.Has = append(q.Has, name)
			continue
		}
		if q.Labels == nil {
			q.Labels = make(map[string]string)
		}
		if old, ok := q.Labels[name]; ok && old != value {
			return problem.Invalid("labels", "%q cannot have two values", name)
		}
		q.Labels[name] = value
	}
	return nil
}

func failed(reason string, err error, options ...problem.Option) *connect.Error {
	return problem.New(connect.CodeFailedPrecondition, reason, err, options...)
}
