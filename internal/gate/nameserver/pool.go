package nameserver

import (
	"container/list"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// Hold is how long an address stays with its name after it was given out, used
// or not. Programs keep addresses longer than they should.
const Hold = 10 * time.Minute

// Pool gives names addresses by which they can be told later. A name has one of
// IPv4 and one of IPv6. When all are taken, the one that was not used for the
// longest time changes hands, but never one that a connection uses and none that
// was given out a short time ago.
type Pool struct {
	v4, v6   netip.Prefix
	capacity int
	now      func() time.Time

	mu     sync.Mutex
	byName map[string]*entry
	byNum  []*entry
	recent *list.List // of *entry, the latest first
}

type entry struct {
	name    string
	number  int
	users   int // connections
	touched time.Time
	place   *list.Element
}

// NewPool makes a pool of at most capacity names. Both prefixes must have room
// for as many addresses.
func NewPool(v4, v6 netip.Prefix, capacity int) *Pool {
	return &Pool{v4: v4, v6: v6, capacity: capacity, now: time.Now, byName: map[string]*entry{}, recent: list.New()}
}

// Assign returns the addresses of a name. It says false if every address is in
// use.
func (p *Pool) Assign(name string) (v4, v6 netip.Addr, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byName[name]
	if e == nil {
		if e = p.free(); e == nil {
			return netip.Addr{}, netip.Addr{}, false
		}
		e.name = name
		p.byName[name] = e
	}
	p.touch(e)
	v4, v6 = p.addresses(e.number)
	return v4, v6, true
}

// Acquire returns the name that has this address. Until release is called the
// address stays with it.
func (p *Pool) Acquire(addr netip.Addr) (name string, release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.find(addr)
	if e == nil {
		return "", nil, false
	}
	e.users++
	p.touch(e)
	return e.name, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		e.users--
		p.touch(e)
	}), true
}

// Name returns the name that has this address, for a look-up in reverse.
func (p *Pool) Name(addr netip.Addr) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.find(addr)
	if e == nil {
		return "", false
	}
	return e.name, true
}

// Contains says whether an address is one that only the pool gives a meaning.
func (p *Pool) Contains(addr netip.Addr) bool {
	return p.v4.Contains(addr) || p.v6.Contains(addr)
}

// free returns an entry without a name.
func (p *Pool) free() *entry {
	if len(p.byNum) < p.capacity {
		e := &entry{number: len(p.byNum)}
		e.place = p.recent.PushFront(e)
		p.byNum = append(p.byNum, e)
		return e
	}
	for place := p.recent.Back(); place != nil; place = place.Prev() {
		e := place.Value.(*entry)
		if p.now().Sub(e.touched) < Hold {
			return nil // all others are younger
		}
		if e.users == 0 {
			delete(p.byName, e.name)
			return e
		}
	}
	return nil
}

func (p *Pool) touch(e *entry) {
	e.touched = p.now()
	p.recent.MoveToFront(e.place)
}

// The first address of a range stands for the range itself.
const firstNumber = 1

func (p *Pool) addresses(number int) (v4, v6 netip.Addr) {
	four := p.v4.Addr().As4()
	binary.BigEndian.PutUint32(four[:], binary.BigEndian.Uint32(four[:])+uint32(number+firstNumber))
	six := p.v6.Addr().As16()
	binary.BigEndian.PutUint32(six[12:], uint32(number+firstNumber))
	return netip.AddrFrom4(four), netip.AddrFrom16(six)
}

func (p *Pool) find(addr netip.Addr) *entry {
	var number uint32
	switch addr = addr.Unmap(); {
	case p.v4.Contains(addr):
		four, base := addr.As4(), p.v4.Addr().As4()
		number = binary.BigEndian.Uint32(four[:]) - binary.BigEndian.Uint32(base[:])
	case p.v6.Contains(addr):
		six := addr.As16()
		number = binary.BigEndian.Uint32(six[12:])
	}
	if number < firstNumber || number-firstNumber >= uint32(len(p.byNum)) {
		return nil
	}
	e := p.byNum[number-firstNumber]
	// Only the exact addresses were given out, not others of the prefix.
	if v4, v6 := p.addresses(e.number); addr != v4 && addr != v6 {
		return nil
	}
	return e
}
