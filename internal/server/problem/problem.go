// Package problem makes the errors that the API answers with: a code of the
// protocol, a message for people, and a baileyv1.Problem for programs, with the
// reason and what to do about it.
package problem

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
)

// Option adds to the detail of an error.
type Option func(*baileyv1.Problem)

// Remedy says what to do about the error: one command, one setting, or one
// request.
func Remedy(format string, args ...any) Option {
	return func(p *baileyv1.Problem) { p.Remedy = fmt.Sprintf(format, args...) }
}

// Retryable says that the same request may succeed later.
func Retryable() Option {
	return func(p *baileyv1.Problem) { p.Retryable = true }
}

// About names what the error is about, such as ("sandbox_id", "sb-1").
func About(key, value string) Option {
	return func(p *baileyv1.Problem) {
		if p.Metadata == nil {
			p.Metadata = map[string]string{}
		}
		p.Metadata[key] = value
	}
}

// New returns an error of the given code. The reason is a word that programs
// branch on and that never changes; the error's own text is for people.
func New(code connect.Code, reason string, err error, options ...Option) *connect.Error {
	p := &baileyv1.Problem{Reason: reason}
	for _, o := range options {
		o(p)
	}
	return withDetail(connect.NewError(code, err), p)
}

// NotFound is the answer for what does not exist and for what belongs to
// somebody else alike, so that nobody learns of another's things. The noun is as
// in "sandbox".
func NotFound(noun, id string) *connect.Error {
	return New(connect.CodeNotFound, noun+"_not_found", fmt.Errorf("there is no %s %q", noun, id),
		About(noun+"_id", id), Remedy("list what there is, and check that the token is of the same owner"))
}

// Invalid is the answer to a request that can never succeed as it is. The field
// is the one to change.
func Invalid(field, format string, args ...any) *connect.Error {
	return New(connect.CodeInvalidArgument, "invalid_"+field, fmt.Errorf(field+": "+format, args...),
		About("field", field), Remedy("change %s and send the request again", field))
}

// Unavailable is the answer while the server cannot serve, and soon may.
func Unavailable(reason string, err error) *connect.Error {
	return New(connect.CodeUnavailable, reason, err, Retryable(), Remedy("send the request again, after a moment"))
}

// Unimplemented is the answer to what this server, or this machine, does not do.
func Unimplemented(reason string, err error, options ...Option) *connect.Error {
	return New(connect.CodeUnimplemented, reason, err, options...)
}

// Of returns the detail of an error, or nil if it has none.
func Of(err error) *baileyv1.Problem {
	var e *connect.Error
	if !errors.As(err, &e) {
		return nil
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if p, ok := m.(*baileyv1.Problem); ok {
				return p
			}
		}
	}
	return nil
}

// Replace returns the error with another detail in the place of its own.
func Replace(e *connect.Error, p *baileyv1.Problem) *connect.Error {
	fresh := connect.NewError(e.Code(), errors.New(e.Message()))
	for key, values := range e.Meta() {
		fresh.Meta()[key] = values
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if _, own := m.(*baileyv1.Problem); own {
				continue
			}
		}
		fresh.AddDetail(d)
	}
	return withDetail(fresh, p)
}

func withDetail(e *connect.Error, p *baileyv1.Problem) *connect.Error {
	if d, err := connect.NewErrorDetail(p); err == nil {
		e.AddDetail(d)
	}
	return e
}
