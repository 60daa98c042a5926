// Package token keeps bearer tokens. A token is 32 random bytes in text; the
// store has only its SHA-256, which says nothing about it, because nobody can try
// 2^256 texts.
package token

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// prefix makes tokens recognisable for people and for programs that look for
// secrets where they should not be.
const prefix = "bailey_"

// ErrInvalid is the answer to every text that is not a token that holds now:
// unknown, revoked or expired.
var ErrInvalid = errors.New("the token is unknown, revoked or expired")

// Info is what is known of a token. The token itself is not.
type Info struct {
	ID      string // the beginning of the hash: enough to name it, useless to use it
	Name    string
	Owner   string
	Scopes  []caller.Scope
	Created time.Time
	Expires time.Time // zero for never
}

// Book is the tokens of a store.
type Book struct{ store store.Store }

// In returns the tokens of a store.
func In(s store.Store) *Book { return &Book{s} }

type data struct {
	Scopes []caller.Scope `json:"scopes"`
}

// Create makes a token and returns its text, which is not kept anywhere. Without
// a lifetime it holds until it is revoked.
func (b *Book) Create(ctx context.Context, name, owner string, scopes []caller.Scope, lifetime time.Duration) (string, *Info, error) {
	if err := check(owner, scopes); err != nil {
		return "", nil, err
	}
	encoded, err := json.Marshal(data{scopes})
	if err != nil {
		return "", nil, err
	}
	text := prefix + newSecret()
	r := &store.Record{Kind: store.Tokens, ID: hash(text), Owner: owner, Name: name, Created: time.Now().UTC(), Data: encoded}
	if lifetime > 0 {
		r.Expires = r.Created.Add(lifetime)
	}
	err = b.store.Commit(ctx, store.Put(r))
	if errors.Is(err, store.ErrExists) {
		return "", nil, fmt.Errorf("%s has a token named %q already: choose another name, or revoke that one", owner, name)
	}
	if err == nil {
		err = b.store.Sync(ctx)
	}
	if err != nil {
		return "", nil, fmt.Errorf("token: %w", err)
	}
	info, err := describe(r)
	return text, info, err
}

func check(owner string, scopes []caller.Scope) error {
	if owner == "" || strings.TrimSpace(owner) != owner {
		return errors.New("a token belongs to an owner: name one, without spaces around it")
	}
	if len(scopes) == 0 {
		return errors.New("a token without a scope could do nothing: name at least one")
	}
	for _, s := range scopes {
		if !slices.Contains(caller.Scopes(), s) {
			return fmt.Errorf("there is no scope %q; there are %s", s, names(caller.Scopes()))
		}
	}
	return nil
}

func names(scopes []caller.Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

// List returns all tokens, or those of one owner, oldest first.
func (b *Book) List(ctx context.Context, owner string) ([]*Info, error) {
	page, err := b.store.List(ctx, store.Query{Kind: store.Tokens, Owner: owner})
	if err != nil {
		return nil, err
	}
	var all []*Info
	for _, r := range page.Records {
		info, err := describe(r)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// Revoke ends a token, which is named by its id or, if only one has it, its name.
// Requests that are under way go on.
func (b *Book) Revoke(ctx context.Context, which string) (*Info, error) {
	page, err := b.store.List(ctx, store.Query{Kind: store.Tokens})
	if err != nil {
		return nil, err
	}
	var found []*store.Record
	for _, r := range page.Records {
		if which != "" && (which == shorten(r.ID) || which == r.Name) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("there is no token %q; see: baileyd token list", which)
	case 1:
	default:
		return nil, fmt.Errorf("%d tokens are named %q: name one by its id; see: baileyd token list", len(found), which)
	}
	info, err := describe(found[0])
	if err != nil {
		return nil, err
	}
	if err := b.store.Commit(ctx, store.Delete(found[0])); err != nil {
		return nil, err
	}
	return info, b.store.Sync(ctx)
}

// Find returns whom a token speaks for, or ErrInvalid. Any other error says that
// it could not be found out.
func (b *Book) Find(ctx context.Context, text string) (caller.Caller, error) {
	if !strings.HasPrefix(text, prefix) {
		return caller.Caller{}, ErrInvalid
	}
	// The lookup is by hash, so how long it takes says nothing about the token.
	r, err := b.store.Get(ctx, store.Tokens, hash(text))
	if errors.Is(err, store.ErrNotFound) {
		return caller.Caller{}, ErrInvalid
	}
	if err != nil {
		return caller.Caller{}, err
	}
	info, err := describe(r)
	if err != nil {
		return caller.Caller{}, err
	}
	if !info.Expires.IsZero() && !time.Now().Before(info.Expires) {
		return caller.Caller{}, ErrInvalid
	}
	return caller.Caller{Owner: info.Owner, Scopes: info.Scopes, Token: info.ID}, nil
}

func describe(r *store.Record) (*Info, error) {
	var d data
	if err := json.Unmarshal(r.Data, &d); err != nil {
		return nil, fmt.Errorf("token %s: %w", shorten(r.ID), err)
	}
	return &Info{ID: shorten(r.ID), Name: r.Name, Owner: r.Owner, Scopes: d.Scopes, Created: r.Created, Expires: r.Expires}, nil
}

func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func shorten(id string) string { return id[:min(12, len(id))] }
