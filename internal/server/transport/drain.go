package transport

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// ErrDraining is why the context of a stream ends when the server shuts down.
// What the stream showed goes on; a client attaches again to the next server.
var ErrDraining = errors.New("the server is shutting down")

// drain is whether the server takes new work.
type drain struct {
	ctx   context.Context // done once it does not
	begin context.CancelFunc
}

func (d *drain) init() { d.ctx, d.begin = context.WithCancel(context.Background()) }

func (d *drain) begun() bool { return d.ctx.Err() != nil }

// attach returns a context that ends with ErrDraining when draining begins.
func (d *drain) attach(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(ErrDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func draining() *connect.Error {
	return problem.Unavailable("server_draining", ErrDraining)
}
