package server

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// adoptExecs goes on with commands that an earlier server started, and returns
// the names of their files. Those whose client waited for all of it in one
// request have no client any more.
func (s *Server) adoptExecs(list []keeper.Execution) map[string]bool {
	files := make(map[string]bool)
	for i := range list {
		x := &list[i]
		s.mu.Lock()
		b := s.boxes[x.Box]
		s.mu.Unlock()
		if b == nil || x.Fleeting {
			s.abandon(x)
			continue
		}
		files[x.ID+".out"], files[x.ID+".err"] = true, true
		if err := s.adoptExec(b, x); err != nil {
			s.log.Warn("a command is lost", "exec", x.ID, "error", err)
		}
	}
	return files
}

// abandon ends a command that nobody waits for any more, and waits for its end:
// nothing may happen later that nobody expects.
func (s *Server) abandon(x *keeper.Execution) {
	e := &execution{id: x.ID, box: &box{id: x.Box}, fleeting: true, told: make(chan keeper.Execution, 1)}
	s.mu.Lock()
	s.execs[e.id] = e
	s.mu.Unlock()
	// A command that the keeper still knows has its end still to be told.
	if s.remote.Signal(e.id, unix.SIGKILL) == nil && x.Fleeting {
		select {
		case <-e.told:
		case <-s.remote.Done():
		}
	}
	s.mu.Lock()
	delete(s.execs, e.id)
	s.mu.Unlock()
	_ = s.remote.Forget(e.id) // what is gone is forgotten
}

func (s *Server) adoptExec(b *box, x *keeper.Execution) error {
	if isSession(x) {
		return s.adoptSession(b, x)
	}
	request := &keeper.Exec{ID: x.ID, Argv: x.Argv}
	if x.Terminal {
		request.Terminal = &native.Terminal{}
	}
	e := s.newExecution(b, request, 0)
	if err := s.register(e, 0); err != nil {
		return err
	}
	e.start, e.input.offset = x.Started.Time(), -1
	for _, o := range e.outputs() {
		if err := o.resume(); err != nil {
			return err
		}
	}
	now, streams, err := s.remote.Attach(x.ID)
	if err != nil {
		return err
	}
	b.count()
	e.connect(streams)
	if now.Ended != 0 {
		e.tell(now)
	}
	go s.await(e)
	return nil
}

// count counts a command that runs already, also in a sandbox that is paused.
func (b *box) count() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy++
}

// sweepSpool removes the output of commands that are not known.
func (s *Server) sweepSpool(known map[string]bool) error {
	entries, err := os.ReadDir(s.spool())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !known[entry.Name()] {
			err = errors.Join(err, os.Remove(s.spool()+"/"+entry.Name()))
		}
	}
	return err
}
