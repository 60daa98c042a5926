package server

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// view shows the files of something that does not run: a sandbox in which no
// command ever does. It ends some time after its last use.
type view struct {
	id, name string // of what it shows, and its own
	tree     tree
	timer    *time.Timer
	scratch  bool // its files are its own, and go with it
}

const viewStays = 10 * time.Second

// viewName is what the keeper calls a view. No sandbox has such a name, so one that
// is left behind belongs to nothing.
func viewName() string { return newID("view") }

// sandboxTree opens the files of a sandbox of the caller's.
func (s *Server) sandboxTree(ctx context.Context, id string) (*os.File, func(), error) {
	if b, err := s.running(ctx, id); err == nil {
		return s.hang(&b.tree, b.id, b.user)
	}
	end := s.turns.take(id)
	defer end()
	k, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if b, err := s.running(ctx, id); err == nil { // it was started meanwhile
		return s.hang(&b.tree, b.id, b.user)
	}
	v, err := s.openView(id, false, func() (*spec.Spec, error) { return s.compiled(asNative(k)) })
	if err != nil {
		return nil, nil, err
	}
	return s.hang(&v.tree, v.name, 0)
}

// asNative is a stored sandbox as the runtime and the system that are always there have it:
// nothing runs in a view, and where others refuse a policy it holds it.
func asNative(k *kept) *kept {
	n := *k
	n.request = proto.CloneOf(k.request)
	n.request.Runtime = spec.RuntimeNative
	n.sandbox = proto.CloneOf(k.sandbox)
	n.sandbox.Image = ""
	return &n
}

// codebaseTree opens the files of a codebase of the caller's. Nobody can change
// them there.
func (s *Server) codebaseTree(ctx context.Context, id string) (*os.File, func(), error) {
	r, err := s.find(ctx, store.Codebases, "codebase", id)
	if err != nil {
		return nil, nil, err
	}
	c, err := loadCodebase(r)
	if err != nil {
		return nil, nil, err
	}
	end := s.turns.take(id)
	defer end()
	v, err := s.openView(c.place(), true, nil)
	if err != nil {
		return nil, nil, err
	}
	return s.hang(&v.tree, v.name, 0)
}

// hang opens the workspace of something that stands. Until release, which the same
// goroutine has to call, what is made there belongs to the user of its commands.
func (s *Server) hang(t *tree, name string, user uint32) (*os.File, func(), error) {
	dir, release, err := t.hold(func() (*os.File, error) {
		remote, err := s.reach()
		if err != nil {
			return nil, err
		}
		return remote.Root(name, workspaceDir)
	})
	if err != nil {
		return nil, nil, explain(err)
	}
	end := become(user)
	return dir, func() { end(); release() }, nil
}

// become has this thread use files as another user, which is root's to do, until the
// function that it returns is called by the same goroutine. 0 is the server's own.
func become(user uint32) (end func()) {
	if user == 0 {
		return func() {}
	}
	runtime.LockOSThread()
	setFileUser(int(user), int(user))
	return func() {
		setFileUser(os.Geteuid(), os.Getegid())
		runtime.UnlockOSThread()
	}
}

// setFileUser changes whom this thread uses files as. Root may, always.
func setFileUser(uid, gid int) {
	_, _ = unix.SetfsgidRetGid(gid)
	_, _ = unix.SetfsuidRetUid(uid)
}

// openView finds or makes a view: of a sandbox, by what it is compiled to, or of a
// version of a codebase, on scratch files. Whose it is takes turns.
func (s *Server) openView(id string, scratch bool, compiled func() (*spec.Spec, error)) (*view, error) {
	s.mu.Lock()
	v := s.views[id]
	s.mu.Unlock()
	if v != nil && v.timer.Reset(viewStays) {
		return v, nil
	}
	s.endView(id)
	v = &view{id: id, name: viewName(), scratch: scratch}
	sp, err := s.viewSpec(v, compiled)
	if err != nil {
		return nil, err
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	if _, err := remote.Open(v.name, sp, 0); err != nil {
		return nil, errors.Join(explain(err), s.removeFiles(v.name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[id] = v
	v.timer = time.AfterFunc(viewStays, func() {
		s.behind(func(context.Context) {
			end := s.turns.take(id)
			defer end()
			s.endView(id)
		})
	})
	return v, nil
}

// viewSpec is what a view is made by.
func (s *Server) viewSpec(v *view, compiled func() (*spec.Spec, error)) (*spec.Spec, error) {
	if !v.scratch {
		sp, err := compiled()
		return unreached(sp), err
	}
	d, err := s.files.Start(v.id, delta.Options{Name: v.name, Target: workspaceDir})
	if err != nil {
		return nil, err
	}
	d.Close()
	over, err := s.overlay(v.name)
	if err != nil {
		return nil, err
	}
	sp, err := s.compile(&baileyv1.CreateSandboxRequest{}, "", true, over)
	return unreached(sp), err
}

// unreached is a sandbox without ports: in a view nothing listens.
func unreached(sp *spec.Spec) *spec.Spec {
	if sp != nil {
		sp.Expose, sp.Inlet = nil, false
	}
	return sp
}

// editCodebase makes the next version of a codebase: a view of the present one is
// changed, and what was written in it becomes a layer.
func (s *Server) editCodebase(ctx context.Context, id string, change func(dir *os.File) error) error {
	_, err := s.advance(ctx, id, func(c *codebase, place string) (workspace.Codebase, error) {
		name := viewName()
		if err := s.changeView(c.place(), name, change); err != nil {
			return workspace.Codebase{}, errors.Join(err, s.removeFiles(name))
		}
		var made workspace.Codebase
		n, err := s.snapshotFiles(name)
		if err == nil {
			made, err = s.files.MakeCodebase(name, n.ID, place)
		}
		return made, errors.Join(err, s.removeFiles(name))
	})
	return err
}

// changeView changes a view that stands for as long as that takes.
func (s *Server) changeView(of, name string, change func(dir *os.File) error) error {
	v := &view{id: of, name: name, scratch: true}
	sp, err := s.viewSpec(v, nil)
	if err != nil {
		return err
	}
	remote, err := s.reach()
	if err != nil {
		return err
	}
	if _, err := remote.Open(name, sp, 0); err != nil {
		return explain(err)
	}
	dir, release, err := s.hang(&v.tree, name, 0)
	if err == nil {
		err = change(dir)
		release()
	}
	v.tree.close()
	if stopped := remote.Stop(name, 0); stopped != nil && !errors.Is(stopped, keeper.ErrMissing) {
		err = errors.Join(err, explain(stopped))
	}
	return err
}

// endView ends the view of something, if there is one.
func (s *Server) endView(id string) {
	s.mu.Lock()
	v := s.views[id]
	delete(s.views, id)
	s.mu.Unlock()
	if v != nil {
		s.closeView(v)
	}
}

func (s *Server) closeView(v *view) {
	v.timer.Stop()
	v.tree.close()
	s.mu.Lock()
	remote := s.remote
	s.mu.Unlock()
	if remote != nil {
		if err := remote.Stop(v.name, 0); err != nil && !errors.Is(err, keeper.ErrMissing) {
			s.log.Warn("a view stays until the server starts again", "view", v.name, "error", err)
			return
		}
	}
	if v.scratch {
		if err := s.removeFiles(v.name); err != nil {
			s.log.Warn("the files of a view stay until the server starts again", "view", v.name, "error", err)
		}
	}
}
