package keeper

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// The keeper builds sandboxes of runtimes that take long to start before there is a
// command for them. Each is for one command: it was used by nobody before, and ends with
// it. Which a command may have is decided by the same key as for sandboxes that stay.

// Waiting is a sandbox that waits for a command.
type Waiting interface {
	// IsReady says whether it still waits.
	IsReady() bool
	// Release returns what a client takes it over by. It ends with the client then, and
	// with this process.
	Release() (files []*os.File, pid int, group string, err error)
	// End ends it, if it was not released.
	End()
	// Done is closed when nothing of it is left.
	Done() <-chan struct{}
}

// Raise builds the sandbox of a Spec, up to where it waits.
type Raise func(s *spec.Spec) (Waiting, error)

// Bounds of what waits. A sandbox of gVisor's that does nothing takes some 40 MB.
const (
	perSpec   = 2
	maxStocks = 4
)

// Take asks for a sandbox that waits.
type Take struct {
	Key []byte
	// Linger is how long sandboxes of this kind wait when nobody asks.
	Linger time.Duration
}

// Taken is a sandbox that was handed over. Without descriptors there is none.
type Taken struct {
	Pid   int
	Group string
	// Note is what the user should know.
	Note string
}

// stock are the sandboxes of one kind that wait. The keeper's mutex guards it.
type stock struct {
	key      string
	spec     *spec.Spec
	linger   time.Duration
	used     time.Time
	timer    *time.Timer
	waiting  []Waiting
	building int
	claims   int           // clients that wait for one that is being built
	changed  chan struct{} // closed when one has been built, or could not be
	gone     bool
	err      error // of the last that could not be built, until it is told
}

// headStart is how long a command has the machine for itself before the next sandbox is
// built, which takes all processors for a moment.
const headStart = 500 * time.Millisecond

// take hands a sandbox over that waits, or one that is just being built, and has the next
// one built once the command has ended or has got on.
func (k *Keeper) take(c *conn, r *received) error {
	var t Take
	if err := r.decode(&t); err != nil {
		return err
	}
	if k.raise == nil || len(t.Key) == 0 {
		return errors.New("this keeper has no sandboxes that wait")
	}
	s, err := k.findStock(c, t)
	if err != nil {
		return err
	}
	if err := k.hand(c, k.claim(s, t.Linger), s); err != nil {
		return err
	}
	ahead := time.NewTimer(headStart)
	defer ahead.Stop()
	select {
	case <-c.watch():
	case <-ahead.C:
	}
	k.fill(s)
	return nil
}

// hand sends a sandbox, or word that there is none.
func (k *Keeper) hand(c *conn, w Waiting, s *stock) error {
	if w == nil {
		return c.send(tellTaken, Taken{Note: k.complaint(s)})
	}
	files, pid, group, err := w.Release()
	if err != nil {
		w.End()
		return err
	}
	err = c.send(tellTaken, Taken{Pid: pid, Group: group}, files...)
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// findStock finds the stock for a key, or makes it from the plan that the client is
// asked for.
func (k *Keeper) findStock(c *conn, t Take) (*stock, error) {
	k.mu.Lock()
	s := k.stocks[string(t.Key)]
	k.mu.Unlock()
	if s != nil {
		return s, nil
	}
	p, err := c.plan()
	if err != nil {
		return nil, err
	}
	s = &stock{key: string(p.Key), spec: &p.Spec, linger: t.Linger, used: time.Now(), changed: make(chan struct{})}
	k.mu.Lock()
	var leaving []Waiting
	if other := k.stocks[s.key]; other != nil {
		s = other // somebody was faster
	} else {
		if len(k.stocks) == maxStocks {
			leaving = k.drop(k.oldest())
		}
		k.stocks[s.key] = s
		s.timer = time.AfterFunc(s.linger, func() { k.expireStock(s) })
	}
	k.mu.Unlock()
	end(leaving)
	return s, nil
}

func (k *Keeper) oldest() *stock {
	var oldest *stock
	for _, s := range k.stocks {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	return oldest
}

// claim takes a sandbox out of a stock. One that is being built is waited for, unless
// others wait for it: it will be ready before one that is begun now.
func (k *Keeper) claim(s *stock, linger time.Duration) Waiting {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.used, s.linger = time.Now(), linger
	if !s.gone {
		s.timer.Reset(s.linger)
	}
	for {
		for len(s.waiting) > 0 {
			w := s.waiting[0]
			s.waiting = s.waiting[1:]
			if w.IsReady() {
				return w
			}
			go w.End()
		}
		if s.building <= s.claims {
			return nil
		}
		s.claims++
		changed := s.changed
		k.mu.Unlock()
		<-changed
		k.mu.Lock()
		s.claims--
	}
}

// fill has as many sandboxes built as a stock should have, one after the other.
func (k *Keeper) fill(s *stock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !s.gone && len(s.waiting)+s.building < perSpec {
		s.building++
		k.pooled++
		go k.build(s)
	}
}

// build adds a sandbox to a stock. It counts until nothing is left of it: with the keeper
// it would end.
func (k *Keeper) build(s *stock) {
	w, err := k.raise(s.spec)
	k.mu.Lock()
	s.building--
	close(s.changed)
	s.changed = make(chan struct{})
	gone := s.gone
	switch {
	case err != nil:
		s.err = err
		k.pooled--
		k.consider()
	case !gone:
		s.waiting = append(s.waiting, w)
	}
	k.mu.Unlock()
	if err != nil {
		return
	}
	if gone {
		w.End()
	}
	<-w.Done()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pooled--
	s.waiting = slices.DeleteFunc(s.waiting, func(other Waiting) bool { return other == w })
	k.consider()
}

// complaint is why a stock is empty, if that is worth telling, once.
func (k *Keeper) complaint(s *stock) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.err == nil {
		return ""
	}
	text := "no sandbox could be built beforehand: " + s.err.Error()
	s.err = nil
	return text
}

// drop takes a stock out of the way and returns what is to be ended. The keeper's mutex
// is held.
func (k *Keeper) drop(s *stock) []Waiting {
	s.gone = true
	s.timer.Stop()
	delete(k.stocks, s.key)
	leaving := s.waiting
	s.waiting = nil
	return leaving
}

func (k *Keeper) expireStock(s *stock) {
	k.mu.Lock()
	var leaving []Waiting
	if !s.gone && time.Since(s.used) >= s.linger {
		leaving = k.drop(s)
	}
	k.consider()
	k.mu.Unlock()
	end(leaving)
}

// drain ends everything that waits.
func (k *Keeper) drain() {
	k.mu.Lock()
	var leaving []Waiting
	for _, s := range k.stocks {
		leaving = append(leaving, k.drop(s)...)
	}
	k.consider()
	k.mu.Unlock()
	end(leaving)
}

func end(list []Waiting) {
	for _, w := range list {
		w.End()
	}
}

// maxPlans is how often a client is asked for its plan, if files that it shows are
// replaced meanwhile.
const maxPlans = 3

// plan asks the client for its plan, and returns it with the key it has now. That
// may be another than was announced: files are replaced. But client and keeper must
// see the same ones.
func (c *conn) plan() (*Plan, error) {
	for range maxPlans {
		p, err := c.askPlan()
		if err != nil {
			return nil, err
		}
		if bytes.Equal(p.key(), p.Key) {
			return p, nil
		}
	}
	return nil, errors.New("the keeper of sandboxes sees other files than this command, or they keep being replaced; " +
		"if it was started in another mount namespace, end its sandboxes, and the next command starts another: bailey box stop --all")
}

func (c *conn) askPlan() (*Plan, error) {
	r, err := c.exchange(tellWant, nil)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if r.kind != askSpec {
		return nil, errors.New("the client sent no plan")
	}
	p := new(Plan)
	return p, r.decode(p)
}

// Asked is a request for a sandbox that waits. While it stands, the keeper builds no
// other for a while: the command that it was for comes first.
type Asked struct {
	Taken
	Files []*os.File // none if there is no such sandbox

	conn *conn
}

// AskWaiting asks for a sandbox of a Spec that waits for its command. A keeper is started
// if there is none.
func AskWaiting(s *spec.Spec, linger time.Duration) (*Asked, error) {
	c, err := Own().dial(true)
	if err != nil {
		return nil, err
	}
	a, err := c.askWaiting(s, linger)
	if err != nil {
		c.close()
	}
	return a, err
}

func (c *conn) askWaiting(s *spec.Spec, linger time.Duration) (*Asked, error) {
	// The gate of such a sandbox is this process's, and so is its environment.
	p := Plan{Spec: *s.Box(), Key: keyOf(s, nil)}
	answer, err := c.exchange(askTake, Take{Key: p.Key, Linger: linger})
	for err == nil && answer.kind == tellWant {
		p.Key = p.key()
		answer, err = c.exchange(askSpec, p)
	}
	if err != nil {
		return nil, err
	}
	a := &Asked{Files: answer.files, conn: c}
	if err := answer.decode(&a.Taken); err != nil || answer.kind != tellTaken {
		answer.close()
		return nil, errors.New("the keeper answered something else")
	}
	return a, nil
}

// Close says that the command has ended. It may be nil.
func (a *Asked) Close() {
	if a != nil {
		a.conn.close()
	}
}
