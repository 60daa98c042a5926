package keeper

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// waiter is a sandbox that is none.
type waiter struct {
	once sync.Once
	dead bool
	done chan struct{}
}

func (w *waiter) IsReady() bool { return !w.dead }

func (w *waiter) End() { w.once.Do(func() { close(w.done) }) }

func (w *waiter) Done() <-chan struct{} { return w.done }

func (w *waiter) Release() ([]*os.File, int, string, error) {
	f, err := os.Open(os.DevNull)
	return []*os.File{f}, 42, "group", err
}

// poolOf is a keeper whose sandboxes are made by a function.
func poolOf(raise Raise) *Keeper {
	return &Keeper{
		boxes: make(map[string]*box), all: make(map[*box]struct{}), stocks: make(map[string]*stock),
		freed: make(chan struct{}, 1), raise: raise, leave: time.AfterFunc(time.Hour, func() {}),
	}
}

// nursery raises waiters, each of which is announced.
func nursery() (Raise, chan *waiter) {
	born := make(chan *waiter, 64)
	return func(*spec.Spec) (Waiting, error) {
		w := &waiter{done: make(chan struct{})}
		born <- w
		return w, nil
	}, born
}

// specOf differs from another by its name.
func specOf(name string) *spec.Spec {
	return &spec.Spec{Runtime: "gvisor", Mounts: []spec.Mount{{Kind: spec.Dir, Target: "/" + name}}}
}

// askFor asks a keeper for a sandbox, as a client does, and returns what it was told once
// the keeper has done everything that follows.
func askFor(t *testing.T, k *Keeper, s *spec.Spec, linger time.Duration) *Asked {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &conn{file: os.NewFile(uintptr(pair[0]), "keeper")}
	served := make(chan error, 1)
	go func() { served <- k.request(theirs); theirs.close() }()
	ours := &conn{file: os.NewFile(uintptr(pair[1]), "client")}
	a, err := ours.askWaiting(s, linger)
	ours.close()
	if served := <-served; err == nil {
		err = served
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		_ = f.Close()
	}
	return a
}

// settled waits until every sandbox that is being built has been.
func settled(k *Keeper, s *spec.Spec) (waiting int) {
	for {
		k.mu.Lock()
		st := k.stocks[string(Key(s))]
		if st == nil {
			k.mu.Unlock()
			return 0
		}
		waiting, building, changed := len(st.waiting), st.building, st.changed
		k.mu.Unlock()
		if building == 0 {
			return waiting
		}
		<-changed
	}
}

func TestNextCommandFindsASandboxThatWaits(t *testing.T) {
	raise, born := nursery()
	k := poolOf(raise)
	s := specOf("a")
	if a := askFor(t, k, s, time.Hour); len(a.Files) != 0 {
		t.Fatal("there was one before the first was asked for")
	}
	if got := settled(k, s); got != perSpec {
		t.Fatalf("%d wait, want %d", got, perSpec)
	}
	for i := range 5 {
		if a := askFor(t, k, s, time.Hour); len(a.Files) != 1 || a.Pid != 42 || a.Group != "group" {
			t.Errorf("command %d got %+v", i, a)
		}
		if got := settled(k, s); got != perSpec {
			t.Errorf("%d wait after command %d, want %d", got, i, perSpec)
		}
	}
	if got := len(born); got != perSpec+5 {
		t.Errorf("%d were built for 5 commands, want %d: each is for one", got, perSpec+5)
	}
}

func TestSandboxForAnotherSpecIsNotGiven(t *testing.T) {
	raise, _ := nursery()
	k := poolOf(raise)
	askFor(t, k, specOf("a"), time.Hour)
	settled(k, specOf("a"))
	if a := askFor(t, k, specOf("b"), time.Hour); len(a.Files) != 0 {
		t.Error("a command got the sandbox of another Spec")
	}
}

func TestSandboxThatDiedIsNotGiven(t *testing.T) {
	raise, born := nursery()
	k := poolOf(raise)
	s := specOf("a")
	askFor(t, k, s, time.Hour)
	settled(k, s)
	for range perSpec {
		(<-born).dead = true
	}
	if a := askFor(t, k, s, time.Hour); len(a.Files) != 0 {
		t.Error("a command got a sandbox that does not live")
	}
}

func TestOneThatIsBeingBuiltIsWaitedForByOneCommand(t *testing.T) {
	begun, finish := make(chan struct{}, 8), make(chan struct{})
	k := poolOf(func(*spec.Spec) (Waiting, error) {
		begun <- struct{}{}
		<-finish
		return &waiter{done: make(chan struct{})}, nil
	})
	s := specOf("a")
	askFor(t, k, s, time.Hour)
	for range perSpec {
		<-begun
	}
	k.mu.Lock()
	st := k.stocks[string(Key(s))]
	k.mu.Unlock()
	got := make(chan Waiting, perSpec)
	for range perSpec {
		go func() { got <- k.claim(st, time.Hour) }()
	}
	for claims := 0; claims < perSpec; {
		k.mu.Lock()
		claims = st.claims
		k.mu.Unlock()
	}
	if w := k.claim(st, time.Hour); w != nil {
		t.Error("a command waits for what others wait for")
	}
	close(finish)
	for range perSpec {
		if <-got == nil {
			t.Error("who waited got nothing")
		}
	}
}

func TestWhatWaitsIsBounded(t *testing.T) {
	raise, born := nursery()
	k := poolOf(raise)
	first := specOf("first")
	askFor(t, k, first, time.Hour)
	settled(k, first)
	var old []*waiter
	for range perSpec {
		old = append(old, <-born)
	}
	for _, name := range []string{"b", "c", "d", "e"}[:maxStocks] {
		askFor(t, k, specOf(name), time.Hour)
		settled(k, specOf(name))
	}
	for _, w := range old {
		<-w.Done()
	}
	if got := len(k.stocks); got != maxStocks {
		t.Errorf("%d kinds wait, want %d", got, maxStocks)
	}
}

func TestWhatNobodyAsksForEnds(t *testing.T) {
	raise, born := nursery()
	k := poolOf(raise)
	s := specOf("a")
	askFor(t, k, s, time.Hour)
	settled(k, s)
	k.mu.Lock()
	st := k.stocks[string(Key(s))]
	k.mu.Unlock()
	k.expireStock(st) // somebody has just asked
	if got := settled(k, s); got != perSpec {
		t.Errorf("%d wait, want %d", got, perSpec)
	}
	k.mu.Lock()
	st.used = st.used.Add(-2 * time.Hour)
	k.mu.Unlock()
	k.expireStock(st)
	for range perSpec {
		<-(<-born).Done()
	}
	if got := len(k.stocks); got != 0 {
		t.Errorf("%d kinds wait, want none", got)
	}
}

func TestStoppingAllEndsWhatWaits(t *testing.T) {
	raise, born := nursery()
	k := poolOf(raise)
	s := specOf("a")
	askFor(t, k, s, time.Hour)
	settled(k, s)
	k.mu.Lock()
	idle := k.isIdle()
	k.mu.Unlock()
	if idle {
		t.Error("a keeper with sandboxes that wait would end")
	}
	k.drain()
	for range perSpec {
		<-(<-born).Done()
	}
}

func TestWhyNothingCouldBeBuiltIsToldOnce(t *testing.T) {
	k := poolOf(func(*spec.Spec) (Waiting, error) { return nil, errors.New("no such platform") })
	s := specOf("a")
	askFor(t, k, s, time.Hour)
	settled(k, s)
	if a := askFor(t, k, s, time.Hour); !strings.Contains(a.Note, "no such platform") || len(a.Files) != 0 {
		t.Errorf("told %+v", a)
	}
}
