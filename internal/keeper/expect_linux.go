package keeper

import (
	"time"

	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
)

// What is the same for every sandbox takes about as long as to find out what one is to
// be. So a server says by name that it will ask for a sandbox, and the keeper makes that
// part of it while the server makes its files and compiles its policy.

// expected is a sandbox that was announced. Who takes it out of the keeper's map has it.
type expected struct {
	ready   chan struct{}
	nascent *native.Nascent // valid once ready is closed; nil if it could not be begun
}

const (
	// expectFor is how long a sandbox that was announced is waited for.
	expectFor = time.Second
	// maxExpected is how many are begun at once; others are when they are asked for.
	maxExpected = 32
)

// expect begins a sandbox whose plan will come.
func (k *Keeper) expect(r *received) error {
	var n Name
	if err := r.decode(&n); err != nil {
		return err
	}
	x := &expected{ready: make(chan struct{})}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.linked.expected[n.Name] != nil || len(k.linked.expected) >= maxExpected {
		return nil
	}
	if k.linked.expected == nil {
		k.linked.expected = make(map[string]*expected)
	}
	k.linked.expected[n.Name] = x
	go func() {
		x.nascent, _ = native.BeginResident() // what fails now is told when it is opened
		close(x.ready)
	}()
	time.AfterFunc(expectFor, func() { k.tire(n.Name, x) })
	return nil
}

// tire ends a sandbox that was announced and not asked for.
func (k *Keeper) tire(name string, x *expected) {
	k.mu.Lock()
	left := k.linked.expected[name] == x
	if left {
		delete(k.linked.expected, name)
	}
	k.mu.Unlock()
	if !left {
		return
	}
	if n := x.begun(); n != nil {
		n.Abandon()
	}
}

// takeExpected returns what was announced under a name, or nil.
func (k *Keeper) takeExpected(name string) *expected {
	k.mu.Lock()
	defer k.mu.Unlock()
	x := k.linked.expected[name]
	delete(k.linked.expected, name)
	return x
}

// begun waits until it has begun, which takes no longer than to begin it now.
func (x *expected) begun() *native.Nascent {
	if x == nil {
		return nil
	}
	<-x.ready
	return x.nascent
}
