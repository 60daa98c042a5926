package transport

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// How much text a request may have. Contents of files and what commands read are
// bytes, and bounded by the message alone: they are not kept with what is made, and
// answers to others do not have them.
const (
	usualText = 4 << 10 // as long as a path can be
	nameText  = 1 << 10
	valueText = 128 << 10 // no program can be given a longer variable
	longText  = 1 << 20
	// allText is the most of one message.
	allText = 2 << 20

	mostLabels  = 64
	mostEntries = 10_000
)

// longest is how long the texts of some fields may be. Of the others it is usualText.
var longest = map[protoreflect.Name]int{
	"name": nameText, "env": valueText,
	"policy": longText, "network": longText, "argv": longText, "shell": longText, "command": longText,
}

// texts is an interceptor that refuses requests with more text than anybody has a use
// for. What is stored of a request is read again at every start of the server and
// for every list.
type texts struct{}

var _ connect.Interceptor = texts{}

// WrapUnary implements connect.Interceptor.
func (texts) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := checkTexts(req.Any()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (texts) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (texts) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, textsConn{conn})
	}
}

type textsConn struct{ connect.StreamingHandlerConn }

// Receive implements connect.StreamingHandlerConn.
func (c textsConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return checkTexts(m)
}

// checkTexts says which field of a request has too much text.
func checkTexts(m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	var c textCheck
	c.message(p.ProtoReflect())
	return c.err
}

// textCheck looks at a message until something is wrong with it.
type textCheck struct {
	sum int
	err error
}

func (c *textCheck) message(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			c.entries(f, v.Map().Len())
			v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				c.text(f, f.MapKey(), key.Value())
				c.value(f, f.MapValue(), value)
				return c.err == nil
			})
		case f.IsList():
			c.entries(f, v.List().Len())
			for i := 0; i < v.List().Len() && c.err == nil; i++ {
				c.value(f, f, v.List().Get(i))
			}
		default:
			c.value(f, f, v)
		}
		return c.err == nil
	})
}

func (c *textCheck) value(field, of protoreflect.FieldDescriptor, v protoreflect.Value) {
	if of.Message() != nil {
		c.message(v.Message())
		return
	}
	c.text(field, of, v)
}

// text checks a text of a field: the field's own, or a key or value of it.
func (c *textCheck) text(field, of protoreflect.FieldDescriptor, v protoreflect.Value) {
	if of.Kind() != protoreflect.StringKind || c.err != nil {
		return
	}
	most := usualText
	if n, ok := longest[field.Name()]; ok {
		most = n
	}
	if field.IsMap() && (of == field.MapKey() || isLabels(field)) {
		most = nameText
	}
	n := len(v.String())
	if n > most {
		c.err = problem.Invalid(string(field.Name()), "it has a text of %d bytes, and at most %d are taken", n, most)
	} else if c.sum += n; c.sum > allText {
		c.err = problem.Invalid(string(field.Name()), "with it, the request has more than %d bytes of text", allText)
	}
}

func (c *textCheck) entries(f protoreflect.FieldDescriptor, n int) {
	most := mostEntries
	if isLabels(f) {
		most = mostLabels
	}
	if n > most && c.err == nil {
		c.err = problem.Invalid(string(f.Name()), "it has %d entries, and at most %d are taken", n, most)
	}
}

func isLabels(f protoreflect.FieldDescriptor) bool { return f.IsMap() && f.Name() == "labels" }
