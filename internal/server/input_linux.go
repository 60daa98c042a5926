package server

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
)

// input is what a command reads from.
type input struct {
	turn sync.Mutex // held by who writes, however long that takes

	mu     sync.Mutex
	file   *os.File // nil once it is closed, or if there is none
	offset int64    // of the next byte; -1 if an earlier server wrote
}

// open returns where to write, or nil, and how far the input is.
func (i *input) open() (*os.File, int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.file, i.offset
}

// close closes the input, also under who writes just now, and says whether it was
// open.
func (i *input) close() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == nil {
		return false
	}
	_ = i.file.Close()
	i.file = nil
	return true
}

// write writes all of the data, unless the input is closed or the context ends.
// The turn is the caller's.
func (i *input) write(ctx context.Context, data []byte) (offset int64, err error) {
	file, offset := i.open()
	if file == nil {
		return offset, os.ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := file.Write(data)
	if !stop() {
		_ = file.SetWriteDeadline(time.Time{})
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.offset = max(i.offset, 0) + int64(n)
	return i.offset, err
}

// feed writes the input that came with the request, and waits for the end.
func (s *Server) feed(e *execution, c *baileyv1.Command) {
	if len(c.GetStdin()) > 0 || !c.GetOpenStdin() && e.input.file != nil && !e.terminal {
		e.input.turn.Lock() // what is written later comes after it
		go func() {
			_, _ = e.input.write(context.Background(), c.GetStdin()) // a command need not read
			e.input.turn.Unlock()
			if !c.GetOpenStdin() && !e.terminal {
				s.closeInput(e)
			}
		}()
	}
	if !e.fleeting {
		go s.await(e)
	}
}

// closeInput ends what a command reads.
func (s *Server) closeInput(e *execution) {
	if e.terminal || !e.input.close() || e.fleeting {
		return
	}
	if remote, err := s.reach(); err == nil {
		_ = remote.FinishInput(e.id) // it may have ended
	}
}

// WriteStdin implements the API.
func (s *Server) WriteStdin(ctx context.Context, r *baileyv1.WriteStdinRequest) (*baileyv1.WriteStdinResponse, error) {
	if err := caller.From(ctx).Demand(caller.Exec); err != nil {
		return nil, err
	}
	e, err := s.exec(ctx, r.GetSandboxId(), r.GetExecId())
	if err != nil {
		return nil, err
	}
	e.input.turn.Lock()
	defer e.input.turn.Unlock()
	data, at, err := e.input.fresh(r)
	if err == nil && len(data) > 0 {
		at, err = e.input.write(ctx, data)
		if err != nil {
			err = failed("input_closed", errors.New("the command does not read any more"), problem.About("offset", strconv.FormatInt(at, 10)))
		}
	}
	if err != nil {
		return nil, err
	}
	if r.GetClose() {
		s.closeInput(e)
	}
	return &baileyv1.WriteStdinResponse{Offset: at}, nil
}

// fresh is what of a request was not written before.
func (i *input) fresh(r *baileyv1.WriteStdinRequest) (data []byte, at int64, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.file == nil {
		return nil, 0, failed("input_closed", errors.New("the command's input is closed"), problem.Remedy("start the command with open_stdin"))
	}
	if i.offset < 0 {
		i.offset = max(r.GetOffset(), 0)
	}
	at = i.offset
	skip := at - r.GetOffset()
	switch {
	case r.GetOffset() == -1:
		skip = 0
	case skip < 0:
		return nil, at, problem.New(connect.CodeOutOfRange, "gap", errors.New("bytes before the offset are missing"), problem.Remedy("send from offset %d on", at))
	case skip > int64(len(r.GetData())):
		skip = int64(len(r.GetData()))
	}
	return r.GetData()[skip:], at, nil
}
