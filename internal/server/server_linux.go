package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/problem"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Config is what a Server needs.
type Config struct {
	// Dir is the server's own directory, absolute. One server uses it at a time.
	Dir string
	// Secrets are files of the server's elsewhere, such as the key of its certificate. No
	// sandbox sees them, nor Dir.
	Secrets []string
	// Store keeps what is decided.
	Store store.Store `json:"-"`
	// Keeper is the program that keeps sandboxes; baileyd beside this one if empty.
	Keeper string
	// Orphans is how long sandboxes go on without a server; 0 is ten minutes.
	Orphans time.Duration
	// Quota bounds what each owner has.
	Quota Quota
	// Usual is what a sandbox has that asks for nothing, and Most what it may ask for.
	Usual, Most Allotment
	// Pool is how many sandboxes may be made before they are asked for; 0 is none.
	Pool int
	// Images is the directory of the images that sandboxes can be made of; empty is none.
	Images string
	// Memory says how much memory the machine has left, if that is known; nil is as the
	// kernel says.
	Memory func() (bytes int64, known bool) `json:"-"`
	// Disk says how much can still be written to the disk, and Processes how many more
	// there may be; as Memory.
	Disk      func() (bytes int64, known bool) `json:"-"`
	Processes func() (left int, known bool)    `json:"-"`
	// Log gets what nobody asked for; nil for nothing.
	Log *slog.Logger `json:"-"`
}

// Server answers the API. It implements the handlers of all services.
type Server struct {
	baileyv1connect.UnimplementedSandboxServiceHandler
	baileyv1connect.UnimplementedExecServiceHandler
	baileyv1connect.UnimplementedSessionServiceHandler
	baileyv1connect.UnimplementedFileServiceHandler
	baileyv1connect.UnimplementedCodebaseServiceHandler
	baileyv1connect.UnimplementedServerServiceHandler

	config Config
	store  store.Store
	files  *workspace.Store
	log    *slog.Logger
	lock   *os.File // on the directory
	began  time.Time

	figures *figures
	pool    *pool

	turns  turns // of who changes a sandbox
	closed closed

	mu       sync.Mutex
	remote   *keeper.Remote
	boxes    map[string]*box       // those that run
	execs    map[string]*execution // commands that run or are remembered
	sessions map[string]*session
	expiry   map[string]*time.Timer
	views    map[string]*view    // of sandboxes that do not run
	feeds    map[string]*feed    // of sandboxes that somebody watches
	making   map[string]int      // sandboxes that are being made, by owner
	stored   map[string]measured // by owner
	layers   map[string]int64    // bytes of layers that were looked at
	closing  bool
	work     sync.WaitGroup
}

var (
	_ baileyv1connect.SandboxServiceHandler  = (*Server)(nil)
	_ baileyv1connect.ExecServiceHandler     = (*Server)(nil)
	_ baileyv1connect.SessionServiceHandler  = (*Server)(nil)
	_ baileyv1connect.FileServiceHandler     = (*Server)(nil)
	_ baileyv1connect.CodebaseServiceHandler = (*Server)(nil)
	_ baileyv1connect.ServerServiceHandler   = (*Server)(nil)
)

const usualOrphans = 10 * time.Minute

// Open begins to serve: it takes over what an earlier server left in the
// directory, and removes what belongs to nothing.
func Open(ctx context.Context, c Config) (*Server, error) {
	if c.Orphans == 0 {
		c.Orphans = usualOrphans
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.checkAllotments(); err != nil {
		return nil, err
	}
	s := &Server{
		config: c, store: c.Store, log: c.Log, began: time.Now(),
		boxes: make(map[string]*box), execs: make(map[string]*execution), sessions: make(map[string]*session),
		expiry: make(map[string]*time.Timer), views: make(map[string]*view),
		stored: make(map[string]measured), layers: make(map[string]int64),
	}
	s.figures, s.pool = newFigures(s), newPool(s, c.Pool)
	if err := s.settle(); err != nil {
		return nil, err
	}
	err := s.connect()
	if err == nil {
		err = s.recover(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// settle prepares the directory, which no other server may use.
func (s *Server) settle() error {
	for _, dir := range []string{s.config.Dir, s.spool()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	dir, err := filepath.EvalSymlinks(s.config.Dir)
	if err != nil {
		return err
	}
	s.config.Dir = dir
	if s.lock, err = os.OpenFile(dir+"/lock", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = s.lock.Close()
		return fmt.Errorf("another server uses %s; end it first, or give this one a directory of its own", dir)
	}
	s.files, err = workspace.Open(delta.At(dir + "/data"))
	if err == nil {
		err = s.makeEmpty()
	}
	if err != nil {
		_ = s.lock.Close()
	}
	return err
}

// emptyCodebase is what a sandbox lies on that has no codebase.
const emptyCodebase = "empty"

func (s *Server) makeEmpty() error {
	_, err := s.files.Codebase(emptyCodebase)
	if !errors.Is(err, workspace.ErrNoCodebase) {
		return err
	}
	dir, err := os.MkdirTemp(s.config.Dir, "empty")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	_, err = s.files.ImportDirectory(dir, workspace.ImportOptions{Name: emptyCodebase})
	return err
}

func (s *Server) spool() string { return s.config.Dir + "/spool" }

// connect links to the keeper.
func (s *Server) connect() error {
	remote, err := keeper.At(s.config.Dir+"/keeper", s.config.Keeper).Link(s.config.Orphans, keeper.Told{Exit: s.ended, Gone: s.lost, Event: s.happened})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.remote = remote
	s.mu.Unlock()
	go func() {
		<-remote.Done()
		s.loseAll(remote)
	}()
	return nil
}

// loseAll notices that the keeper has ended, and everything with it. The next
// request that needs one starts another.
func (s *Server) loseAll(remote *keeper.Remote) {
	s.mu.Lock()
	var lost []string
	if s.remote == remote && !s.closing {
		s.remote = nil
		for id := range s.boxes {
			lost = append(lost, id)
		}
	}
	s.mu.Unlock()
	for _, id := range lost {
		s.lost(id)
	}
}

// reach returns the keeper.
func (s *Server) reach() (*keeper.Remote, error) {
	unlock := s.turns.take("keeper")
	defer unlock()
	s.mu.Lock()
	remote, closing := s.remote, s.closing
	s.mu.Unlock()
	if closing {
		return nil, problem.Unavailable("shutting_down", errors.New("the server is about to end"))
	}
	if remote != nil {
		return remote, nil
	}
	if err := s.connect(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote, nil
}

// Close ends the server. Sandboxes and commands go on, for the next one.
func (s *Server) Close() {
	s.pool.close()
	s.mu.Lock()
	s.closing = true
	remote := s.remote
	for _, t := range s.expiry {
		t.Stop()
	}
	var views []*view
	for _, v := range s.views {
		views = append(views, v)
	}
	for _, e := range s.execs {
		e.letGo()
	}
	for _, n := range s.sessions {
		n.letGo()
	}
	s.mu.Unlock()
	for _, v := range views {
		s.closeView(v)
	}
	if remote != nil {
		remote.Close()
	}
	s.work.Wait()
	_ = s.lock.Close()
}

// behind does something that nobody waits for, unless the server ends.
func (s *Server) behind(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	s.work.Go(func() { f(context.Background()) })
}

// turns lets those who do something with the same name take turns.
type turns struct {
	mu    sync.Mutex
	queue map[string]*turn
}

type turn struct {
	mu      sync.Mutex
	waiting int
}

// take waits for the turn, and returns what ends it.
func (t *turns) take(name string) (end func()) {
	t.mu.Lock()
	if t.queue == nil {
		t.queue = make(map[string]*turn)
	}
	own := t.queue[name]
	if own == nil {
		own = &turn{}
		t.queue[name] = own
	}
	own.waiting++
	t.mu.Unlock()
	own.mu.Lock()
	return func() {
		own.mu.Unlock()
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.waiting--; own.waiting == 0 {
			delete(t.queue, name)
		}
	}
}
