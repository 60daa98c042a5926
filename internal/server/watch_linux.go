package server

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/workspace/watch"
)

// mostWatched is how many directories one request may watch. The kernel keeps each
// in memory.
const mostWatched = 20_000

// temporaryName begins the name of a file that is put in its place when it is whole.
const temporaryName = ".bailey"

// isTemporary says whether writeFile would call a file that is not whole so.
func isTemporary(name string) bool {
	return strings.HasPrefix(name, temporaryName+"-") && len(name) == len(newID(temporaryName))
}

var watchedKinds = map[watch.Kind]baileyv1.FileChangeKind{
	watch.Made:    baileyv1.FileChangeKind_FILE_CHANGE_KIND_MADE,
	watch.Changed: baileyv1.FileChangeKind_FILE_CHANGE_KIND_CHANGED,
	watch.Removed: baileyv1.FileChangeKind_FILE_CHANGE_KIND_REMOVED,
	watch.Lost:    baileyv1.FileChangeKind_FILE_CHANGE_KIND_LOST,
}

// WatchFiles implements the API.
func (s *Server) WatchFiles(ctx context.Context, r *baileyv1.WatchFilesRequest, to *connect.ServerStream[baileyv1.FileChange]) error {
	if err := caller.From(ctx).Demand(caller.Read); err != nil {
		return err
	}
	name := r.GetPath()
	if len(r.GetRawPath()) > 0 {
		name = string(r.GetRawPath())
	}
	name, err := cleanPath("path", name)
	if err != nil {
		return err
	}
	watched := false
	err = watch.Watch{
		Open: func() (*os.File, func(), error) { return s.shown(ctx, r.GetSandboxId()) },
		Path: name, Recursive: r.GetRecursive(), Limit: mostWatched, Ignore: isTemporary, Refresh: viewStays / 2,
	}.Run(ctx, func() error {
		watched = true
		return sendChanges(to, []watch.Change{{Kind: watch.Lost, Path: name, IsDir: true}}) // so that the client knows that it watches
	}, func(changes []watch.Change) error { return sendChanges(to, changes) })
	switch {
	case watched && connect.CodeOf(err) == connect.CodeNotFound && err != nil:
		return nil // the sandbox was destroyed
	case errors.Is(err, watch.ErrTooMany):
		return failed("too_many_directories", err, problem.Remedy("watch a directory further down, or without what is below it"))
	}
	return fileError(name, err)
}

// shown opens the files of a sandbox wherever they are to be seen now. One that is
// being stopped is waited for, and one that has ended by itself until that is known.
func (s *Server) shown(ctx context.Context, id string) (*os.File, func(), error) {
	for {
		dir, release, err := s.sandboxTree(ctx, id)
		if err == nil || problem.Of(err).GetReason() != "sandbox_not_running" {
			return dir, release, err
		}
		end := s.turns.take(id)
		end()
		if err := rest(ctx, notKnownYet); err != nil {
			return nil, nil, err
		}
	}
}

// notKnownYet is how long nobody asks for a sandbox whose end nobody was told of yet.
const notKnownYet = 5 * time.Millisecond

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sendChanges(to *connect.ServerStream[baileyv1.FileChange], changes []watch.Change) error {
	for _, c := range changes {
		m := &baileyv1.FileChange{Kind: watchedKinds[c.Kind], Path: strings.ToValidUTF8(c.Path, "\uFFFD"), Directory: c.IsDir}
		if !utf8.ValidString(c.Path) {
			m.RawPath = []byte(c.Path)
		}
		if err := to.Send(m); err != nil {
			return err
		}
	}
	return nil
}
