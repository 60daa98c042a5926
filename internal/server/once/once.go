// Package once ties what a request makes to the request, so that the same request,
// sent again to the next server after the end of this one, finds what was made.
package once

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"sync"
)

// request is one with an idempotency key.
type request struct {
	seed  []byte
	again bool

	mu   sync.Mutex
	made map[string]uint64 // how many names there are, by prefix
}

type key struct{}

// With is a context of a request that has a seed of its own, which is the same when
// it is sent again. Again says that an earlier server began with it and was not
// seen to end it.
func With(ctx context.Context, seed []byte, again bool) context.Context {
	return context.WithValue(ctx, key{}, &request{seed: seed, again: again, made: map[string]uint64{}})
}

func from(ctx context.Context) *request {
	r, _ := ctx.Value(key{}).(*request)
	return r
}

// Again says whether an earlier server may have done what the request asks for, or
// a part of it.
func Again(ctx context.Context) bool {
	r := from(ctx)
	return r != nil && r.again
}

// Name is the next name for something that the request makes: the same in the same
// order whenever it is sent, and nothing that anybody can guess. It is empty for
// a request without a seed.
func Name(ctx context.Context, prefix string) string {
	r := from(ctx)
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made[prefix]++
	return r.name(prefix, r.made[prefix])
}

// First is what Name returns first.
func First(ctx context.Context, prefix string) string {
	r := from(ctx)
	if r == nil {
		return ""
	}
	return r.name(prefix, 1)
}

func (r *request) name(prefix string, n uint64) string {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(r.seed[:len(r.seed):len(r.seed)], n), prefix...))
	return prefix + "-" + Text(sum[:15])
}

// Text writes bytes as names have them.
func Text(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}
