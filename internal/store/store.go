package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind says what a record is about.
type Kind string

// The nouns.
const (
	Owners    Kind = "owner"
	Tokens    Kind = "token" // the id is a hash: the token itself is nowhere
	Codebases Kind = "codebase"
	Sandboxes Kind = "sandbox"
	Snapshots Kind = "snapshot"
	Sessions  Kind = "session"
	// Applied are changes of sandboxes that are in their codebases already, and
	// still have to be part of what the sandboxes begin with.
	Applied Kind = "applied"
	// Requests are those that were answered, by their idempotency keys.
	Requests Kind = "request"
	Audit    Kind = "audit"
)

// Record is one thing that is kept.
type Record struct {
	Kind  Kind
	ID    string // unique among its kind
	Owner string
	// Name, unless it is empty, is unique among the owner's records of the kind.
	Name   string
	Parent string // the id of what it belongs to, if anything
	State  string
	Labels map[string]string
	// Created and Expires are kept to the microsecond. Without Expires it stays.
	Created, Expires time.Time
	Data             []byte

	// Revision changes with every change, and is the store's to set. Zero means
	// that the record is not stored yet.
	Revision int64
}

// Change is a part of a Commit.
type Change struct {
	record *Record
	remove bool
}

// Put stores a record. If its Revision is zero there must be none with its id;
// otherwise it replaces the one with that very revision. After the Commit the
// record has its new revision.
func Put(r *Record) Change { return Change{record: r} }

// Delete removes a record, which must have the revision given; with revision zero
// it is removed in whatever state it is, and may be gone already.
func Delete(r *Record) Change { return Change{record: r, remove: true} }

var (
	// ErrNotFound says that there is no such record.
	ErrNotFound = errors.New("not found")
	// ErrExists says that an id or a name is taken.
	ErrExists = errors.New("exists already")
	// ErrConflict says that a record has changed since it was read.
	ErrConflict = errors.New("changed meanwhile")
	// ErrCursor says that a list cannot be continued from there.
	ErrCursor = errors.New("not a place in this list; begin again without a page token")
)

// Query chooses records. What is empty chooses nothing out.
type Query struct {
	Kind   Kind
	Owner  string
	Parent string
	Name   string
	States []string          // one of them
	Labels map[string]string // all of them
	Has    []string          // labels, with whatever value; all of them
	// ExpiredBy chooses those that expire, and not after that moment.
	ExpiredBy time.Time
	// Newest turns the order round.
	Newest bool
	// After is a Page's Next.
	After string
	// Limit is the most records to return; 0 for all.
	Limit int
}

// Page is a part of a list, in the order in which the records were created.
type Page struct {
	Records []*Record
	// Next continues the list; it is empty at the end.
	Next string
}

// Store keeps records. Its methods may be called from several goroutines.
type Store interface {
	// Get returns a record, or ErrNotFound.
	Get(ctx context.Context, kind Kind, id string) (*Record, error)
	// List returns records. Pages taken one after the other miss none that is
	// there all the time, and have none twice.
	List(ctx context.Context, q Query) (*Page, error)
	// Count says how many records a list without paging would have.
	Count(ctx context.Context, q Query) (int, error)
	// Commit makes all changes or none. Once it has returned without an error, no
	// end of this process undoes it; for an end of the machine see Sync. Others
	// never see some of the changes without the rest.
	Commit(ctx context.Context, changes ...Change) error
	// Sync waits until everything committed is on the disk.
	Sync(ctx context.Context) error
	Close() error
}

// Update reads a record, has it changed, and stores it, again if somebody else
// was faster. The function may be called several times. The record it returns is
// the one stored. Further changes, if any, are part of the same Commit.
func Update(ctx context.Context, s Store, kind Kind, id string, change func(*Record) error, further ...Change) (*Record, error) {
	for {
		r, err := s.Get(ctx, kind, id)
		if err != nil {
			return nil, err
		}
		if err := change(r); err != nil {
			return nil, err
		}
		err = s.Commit(ctx, append([]Change{Put(r)}, further...)...)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
}

// failure names the record that an error is about.
func failure(r *Record, err error) error {
	return fmt.Errorf("%s %s: %w", r.Kind, r.ID, err)
}

// check refuses a record that could not be found again.
func (r *Record) check() error {
	if r.Kind == "" || r.ID == "" {
		return errors.New("a record has a kind and an id")
	}
	return nil
}
