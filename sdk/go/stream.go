package sdk

import (
	"context"
	"io"
	"iter"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/httpbody"
)

// persistent reads a stream that is opened again while it breaks in ways that may pass,
// until it ends by itself. Each message is noted before it is told.
func persistent[T any](ctx context.Context, open func(context.Context) (*connect.ServerStreamForClient[T], error), note func(*T)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		for attempt := 1; ; attempt++ {
			progress, done, err := readOnce(ctx, open, func(m *T) bool {
				note(m)
				return yield(m, nil)
			})
			if done {
				return
			}
			if progress {
				attempt = 1
			}
			if retryable(err) && attempt < attempts {
				err = pause(ctx, attempt)
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// readOnce reads one stream to its end. It is done when there is nothing more or nobody
// wants it.
func readOnce[T any](ctx context.Context, open func(context.Context) (*connect.ServerStreamForClient[T], error), tell func(*T) bool) (progress, done bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end() // a stream that is closed is read to its end, and this one may have none
	stream, err := open(ctx)
	if err != nil {
		return false, false, err
	}
	for stream.Receive() {
		progress = true
		if !tell(stream.Msg()) {
			return true, true, nil
		}
	}
	return progress, stream.Err() == nil, stream.Err()
}

// receive copies a body that comes in messages.
func receive(to io.Writer) func(*connect.ServerStreamForClient[httpbody.HttpBody], error) error {
	return func(stream *connect.ServerStreamForClient[httpbody.HttpBody], err error) error {
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		for stream.Receive() {
			if _, err := to.Write(stream.Msg().GetData()); err != nil {
				return err
			}
		}
		return stream.Err()
	}
}

// page is an answer that may have a next one.
type page interface{ GetNextPageToken() string }

// pages collects what a method lists, page by page. The token is that of the request.
func pages[R any, P page, T any](ctx context.Context, list func(context.Context, *R) (P, error), r *R, token *string, items func(P) []T) ([]T, error) {
	var all []T
	for {
		p, err := list(ctx, r)
		if err != nil {
			return nil, err
		}
		all = append(all, items(p)...)
		if *token = p.GetNextPageToken(); *token == "" {
			return all, nil
		}
	}
}
