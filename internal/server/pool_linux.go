package server

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/server/once"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/store"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// Sandboxes of a kind that was asked for more than once lately are made before they are
// asked for again. A kind is everything that decides what a sandbox is: the version of its
// codebase, its policy, limits, environment and runtime. What is decided about the files of
// a codebase becomes mounts, so that one that is mounted later would be another sandbox.
// Who a sandbox belongs to, its name, labels and times are not part of the kind: nobody has
// used a spare before, and it has no record. A spare that a server leaves behind belongs
// to nothing, and the next server removes it.

const (
	// poolWindow is how long demand counts, and how long a spare is good for.
	poolWindow = time.Minute
	// poolBurst is the time in which as many may be asked for again as were before.
	poolBurst = 5 * time.Second
	// poolLook is how often it is looked whether the machine has memory for spares.
	poolLook = 5 * time.Second
	// poolPause is how long who has got a sandbox has the machine for itself before the
	// next one is made.
	poolPause = 20 * time.Millisecond
)

// pool has the spares of all kinds.
type pool struct {
	server *Server
	most   int
	waits  prometheus.Gauge
	takes  *prometheus.CounterVec
	work   sync.WaitGroup
	ended  chan struct{} // closed with the pool

	mu     sync.Mutex
	stocks map[string]*stock
	making int // spares that are being made
	closed bool
	looker *time.Timer // runs while spares wait
}

// stock has the spares of one kind. The pool's mutex guards it.
type stock struct {
	kind
	asked  []time.Time // lately
	ready  []*spare
	making bool
	timer  *time.Timer
}

// kind is what makes sandboxes equal.
type kind struct {
	key     string
	place   string // of the codebase's version
	request *baileyv1.CreateSandboxRequest
	bounded bool
}

// spare is a sandbox that stands and belongs to nobody.
type spare struct {
	standing keeper.Standing
	runtime  string
	remote   *keeper.Remote
	made     time.Time
}

func newPool(s *Server, most int) *pool {
	return &pool{
		server: s, most: most, stocks: make(map[string]*stock), ended: make(chan struct{}),
		waits: prometheus.NewGauge(prometheus.GaugeOpts{Name: "bailey_pool_sandboxes", Help: "Sandboxes that were made before anybody asked for them."}),
		takes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "bailey_pool_takes_total", Help: "Sandboxes that were asked for and could have been in the pool, by whether they were."}, []string{"result"}),
	}
}

// kindOf is the kind of a sandbox that is asked for; false if none waits for it.
func (s *Server) kindOf(ctx context.Context, k *kept) (kind, bool) {
	r := k.request
	if s.pool.most == 0 || once.Again(ctx) || r.GetCreateOnly() || r.GetSnapshotId() != "" || r.GetImage() != "" || len(r.GetPorts()) > 0 {
		return kind{}, false
	}
	place := emptyCodebase
	if id := r.GetCodebaseId(); id != "" {
		record, err := s.find(ctx, store.Codebases, "codebase", id)
		if err != nil {
			return kind{}, false // it will be said
		}
		c, err := loadCodebase(record)
		if err != nil {
			return kind{}, false
		}
		place = c.place()
	}
	t := proto.CloneOf(r)
	t.Name, t.Labels, t.Owner, t.Ttl, t.IdleTimeout = "", nil, "", nil, nil
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(t)
	return kind{key: strconv.FormatBool(k.bounded) + " " + place + " " + string(data), place: place, request: t, bounded: k.bounded}, err == nil
}

// createFromPool gives a spare to who asks for a sandbox; false if there is none.
func (s *Server) createFromPool(ctx context.Context, k *kept) (bool, error) {
	begin := time.Now()
	of, ok := s.kindOf(ctx, k)
	if !ok {
		return false, nil
	}
	taken := s.pool.take(of)
	if taken == nil {
		return false, nil
	}
	id, sb := taken.standing.Name, k.sandbox
	end := s.turns.take(id)
	defer end()
	k.asked, k.record.ID, sb.Id, sb.Runtime = sb.GetId(), id, id, taken.runtime
	sb.State, sb.StartTime = baileyv1.SandboxState_SANDBOX_STATE_RUNNING, timestamppb.Now()
	s.renew(id)
	if err := s.enroll(ctx, k, &taken.standing); err != nil {
		return true, errors.Join(err, s.removeFiles(id))
	}
	s.plan(k)
	s.figures.made.Observe(time.Since(begin).Seconds())
	return true, nil
}

// take returns a spare of a kind, or nil, and has the next ones made.
func (p *pool) take(of kind) *spare {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	st := p.stocks[of.key]
	if st == nil {
		st = &stock{kind: of}
		st.timer = time.AfterFunc(poolWindow, func() { p.expire(st) })
		p.stocks[of.key] = st
	}
	st.timer.Reset(poolWindow)
	st.asked = append(slices.DeleteFunc(st.asked, func(t time.Time) bool { return now.Sub(t) > poolWindow }), now)
	var found *spare
	for found == nil && len(st.ready) > 0 {
		found, st.ready = st.ready[0], st.ready[1:]
		if now.Sub(found.made) > poolWindow || isClosed(found.remote.Done()) {
			p.discard(found)
			found = nil
		}
	}
	result := "miss"
	if found != nil {
		result = "hit"
	}
	p.takes.WithLabelValues(result).Inc()
	p.waits.Set(float64(p.waiting()))
	p.fill(st)
	return found
}

// waiting counts the spares of all kinds. The pool's mutex is held.
func (p *pool) waiting() (n int) {
	for _, st := range p.stocks {
		n += len(st.ready)
	}
	return n
}

// wanted is how many spares of a kind there should be: none for what was asked for only
// once, and otherwise as many as were lately asked for at a time.
func (st *stock) wanted(now time.Time) int {
	if len(st.asked) < 2 {
		return 0
	}
	n := 0
	for _, t := range st.asked {
		if now.Sub(t) <= poolBurst {
			n++
		}
	}
	return max(n, 1)
}

// fill has spares of a kind made, one after the other, so that who waits for a sandbox
// keeps most of the machine. The pool's mutex is held.
func (p *pool) fill(st *stock) {
	if st.making || !p.wants(st) {
		return
	}
	st.making = true
	p.making++
	p.work.Go(func() {
		pause := time.NewTimer(poolPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-p.ended:
		}
		p.make(st)
	})
}

// wants says whether another spare of a kind is to be made.
func (p *pool) wants(st *stock) bool {
	return !p.closed && p.stocks[st.key] == st && len(st.ready) < st.wanted(time.Now()) && p.hasMuchMemory() && p.hasRoom(st)
}

// hasRoom says whether the pool may have one more of a kind. A spare of the kind that was
// not asked for for the longest time makes room, if that is a while.
func (p *pool) hasRoom(st *stock) bool {
	if p.waiting()+p.making < p.most {
		return true
	}
	var oldest *stock
	for _, other := range p.stocks {
		if other != st && len(other.ready) > 0 && (oldest == nil || other.last().Before(oldest.last())) {
			oldest = other
		}
	}
	if oldest == nil || time.Since(oldest.last()) < poolBurst {
		return false
	}
	p.discard(oldest.ready[0])
	oldest.ready = oldest.ready[1:]
	return true
}

// last is when a kind was asked for last.
func (st *stock) last() time.Time { return st.asked[len(st.asked)-1] }

// hasMuchMemory says whether the machine has memory for what nobody has asked for.
func (p *pool) hasMuchMemory() bool {
	free, known := p.server.memory()
	return known && free > 2*reserveMemory
}

// lookAgain has it looked after the machine's memory. The pool's mutex is held.
func (p *pool) lookAgain() {
	switch {
	case p.looker == nil:
		p.looker = time.AfterFunc(poolLook, p.look)
	default:
		p.looker.Reset(poolLook)
	}
}

// look ends the spares if others need what they take, and looks again later while there
// are some.
func (p *pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.waiting() == 0 {
		return
	}
	if !p.hasMuchMemory() {
		for _, st := range p.stocks { // what is asked for again is known still
			p.discardAll(st)
		}
		return
	}
	p.lookAgain()
}

// make makes spares until there are enough. What cannot be made is made, or refused, when
// somebody asks for it.
func (p *pool) make(st *stock) {
	for {
		made, err := p.makeSpare(&st.kind)
		p.mu.Lock()
		st.making = false
		p.making--
		switch {
		case err != nil:
			p.remove(st)
			p.server.log.Debug("no sandbox for the pool", "error", err)
		case p.closed || p.stocks[st.key] != st: // nobody wants it any more
			p.discard(made)
		default:
			st.ready = append(st.ready, made)
			p.waits.Set(float64(p.waiting()))
			p.lookAgain()
		}
		if err != nil || !p.wants(st) {
			p.mu.Unlock()
			return
		}
		st.making = true
		p.making++
		p.mu.Unlock()
	}
}

// errPoolEnded is why nothing is made any more.
var errPoolEnded = errors.New("the pool has ended")

// makeSpare makes a sandbox of a kind that has no record.
func (p *pool) makeSpare(of *kind) (*spare, error) {
	if isClosed(p.ended) {
		return nil, errPoolEnded
	}
	s, id := p.server, newID("sb")
	d, err := s.files.Start(of.place, delta.Options{Name: id, Target: workspaceDir})
	if err != nil {
		return nil, err
	}
	over := overlaid(d)
	d.Close()
	made, err := s.raiseSpare(over, of)
	if err != nil {
		return nil, errors.Join(err, s.removeFiles(id))
	}
	return made, nil
}

func (s *Server) raiseSpare(over *spec.Overlay, of *kind) (*spare, error) {
	sp, err := s.compile(of.request, "", of.bounded, over)
	if err == nil {
		err = s.config.Most.within(sp)
	}
	if err != nil {
		return nil, err
	}
	remote, err := s.reach()
	if err != nil {
		return nil, err
	}
	st, err := remote.Open(over.Name, sp, 0)
	return &spare{standing: st, runtime: runtimeOf(sp), remote: remote, made: time.Now()}, err
}

// lose forgets a spare that has ended by itself.
func (p *pool) lose(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stocks {
		i := slices.IndexFunc(st.ready, func(s *spare) bool { return s.standing.Name == id })
		if i < 0 {
			continue
		}
		p.discard(st.ready[i])
		st.ready = slices.Delete(st.ready, i, i+1)
		p.waits.Set(float64(p.waiting()))
	}
}

// expire removes the spares of a kind that nobody asked for any more.
func (p *pool) expire(st *stock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stocks[st.key] == st {
		p.remove(st)
	}
}

// remove forgets a kind, and ends its spares. The pool's mutex is held.
func (p *pool) remove(st *stock) {
	st.timer.Stop()
	delete(p.stocks, st.key)
	p.discardAll(st)
}

// discardAll ends the spares of a kind. The pool's mutex is held.
func (p *pool) discardAll(st *stock) {
	for _, s := range st.ready {
		p.discard(s)
	}
	st.ready = nil
	p.waits.Set(float64(p.waiting()))
}

// discard ends a spare, behind. The pool's mutex is held.
func (p *pool) discard(s *spare) {
	p.work.Go(func() {
		err := s.remote.Stop(s.standing.Name, 0)
		if errors.Is(err, keeper.ErrMissing) || errors.Is(err, keeper.ErrGone) {
			err = nil
		}
		if err = errors.Join(err, p.server.removeFiles(s.standing.Name)); err != nil {
			p.server.log.Warn("a spare sandbox stays until the server starts again", "sandbox", s.standing.Name, "error", err)
		}
	})
}

// drain ends all spares: the machine needs what they take.
func (p *pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, st := range p.stocks {
		p.remove(st)
	}
}

// close ends the pool and waits until nothing is left of it.
func (p *pool) close() {
	p.mu.Lock()
	if !p.closed {
		close(p.ended)
	}
	p.closed = true
	if p.looker != nil {
		p.looker.Stop()
	}
	p.mu.Unlock()
	p.drain()
	p.work.Wait()
}
