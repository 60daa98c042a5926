package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve answers on all listeners until ctx is done, then shuts down: it takes no
// new work, ends streams with a code that tells clients to come back, and gives
// other requests until the deadline to finish. It closes the listeners. The
// error is that of a listener that broke, or says that something was cut off.
func (t *Transport) Serve(ctx context.Context, deadline time.Duration, listeners ...net.Listener) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC without TLS, on loopback and unix sockets
	server := &http.Server{
		Handler:           t,
		Protocols:         protocols,
		MaxHeaderBytes:    t.bounds.Header,
		ReadHeaderTimeout: t.bounds.HeaderTime,
		IdleTimeout:       t.bounds.Idle,
		ConnContext:       connContext,
		ErrorLog:          slog.NewLogLogger(t.config.Log.Handler(), slog.LevelDebug),
	}
	sweeping, swept := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { t.forgetExpired(sweeping) })
	defer sweeper.Wait()
	defer swept()
	broken := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { broken <- server.Serve(l) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-broken:
	}
	return errors.Join(err, t.shutDown(server, deadline))
}

func (t *Transport) shutDown(server *http.Server, deadline time.Duration) error {
	t.drain.begin()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close()
		return errors.New("requests were cut off at the deadline of the shutdown")
	}
	return err
}

// connContext looks at who connected once for each connection.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if u, ok := c.(*net.UnixConn); ok {
		return withPeer(ctx, lookAt(u))
	}
	return ctx
}
