package gate

import (
	"context"
	"errors"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/gate/socks"
)

// serveSOCKS is a SOCKS proxy for one connection.
func (s *session) serveSOCKS() {
	s.client.expect(greetingTime)
	q, err := socks.Accept(s.client.buffered(), s.client)
	if err != nil {
		return // the client has been told, if it could be
	}
	s.client.expect(0)
	s.tunnel(q.Host, q.Port, func(err error) error { return q.Answer(s.client, socksReply(err)) })
}

// socksReply says in SOCKS why there is no connection.
func socksReply(err error) socks.Reply {
	var d *denial
	var upstream *socks.Error
	switch {
	case err == nil:
		return socks.Succeeded
	case errors.As(err, &d):
		return socks.NotAllowed
	case errors.As(err, &upstream):
		return upstream.Reply
	case errors.Is(err, syscall.ECONNREFUSED):
		return socks.ConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH):
		return socks.NetworkUnreachable
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, errNoSuchHost):
		return socks.HostUnreachable
	case errors.Is(err, errTooLong), errors.Is(err, context.DeadlineExceeded):
		return socks.Expired
	}
	return socks.Failed
}
