// Package caller says who sent a request and what they may do. The transport
// finds it out; whoever handles the request asks.
package caller

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// Scope is one thing that a token may be used for.
type Scope string

const (
	Read  Scope = "read"  // look at what there is, files included
	Write Scope = "write" // make, change and remove codebases, sandboxes and files
	Exec  Scope = "exec"  // run commands in sandboxes
	// Metrics lets figures about the whole server be read, and nothing else.
	Metrics Scope = "metrics"
	// Admin is all of these, for every owner, and lets paths and addresses of the
	// machine be named.
	Admin Scope = "admin"
)

// Scopes lists every Scope.
func Scopes() []Scope { return []Scope{Read, Write, Exec, Metrics, Admin} }

// Caller is who sent a request.
type Caller struct {
	Owner  string  // whose things the caller sees and makes
	Scopes []Scope // what the caller may do
	Token  string  // id of the token, or empty for a peer of the unix socket
}

// Local is the caller on the unix socket: the user that the server runs as, who
// could do all of this without it.
func Local(owner string) Caller { return Caller{Owner: owner, Scopes: Scopes()} }

// May tells whether the caller has a scope. Who has Admin has all.
func (c Caller) May(s Scope) bool {
	return slices.Contains(c.Scopes, s) || slices.Contains(c.Scopes, Admin)
}

// Sees tells whether things of an owner exist for the caller.
func (c Caller) Sees(owner string) bool { return owner == c.Owner || c.May(Admin) }

// ActFor returns the owner that a new thing belongs to: the caller's own, or the
// named one if the caller may act for others.
func (c Caller) ActFor(owner string) (string, error) {
	if owner == "" || owner == c.Owner {
		return c.Owner, nil
	}
	if c.May(Admin) {
		return owner, nil
	}
	return "", problem.New(connect.CodePermissionDenied, "foreign_owner",
		fmt.Errorf("the token is of %q and cannot make things for %q", c.Owner, owner),
		problem.Remedy("leave owner empty, or use a token of that owner"))
}

// Demand returns an error unless the caller has a scope.
func (c Caller) Demand(s Scope) error {
	if c.May(s) {
		return nil
	}
	return problem.New(connect.CodePermissionDenied, "scope_missing",
		fmt.Errorf("the token does not have the scope %q", s),
		problem.About("scope", string(s)), problem.Remedy("baileyd token create --owner %s --scope %s", c.Owner, s))
}

type key struct{}

// With returns a context of a request that the caller sent.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns who sent the request of the context. A context that no transport
// made has a caller without owner and scopes, for whom nothing exists.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}
