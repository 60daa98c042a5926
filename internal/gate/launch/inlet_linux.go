package launch

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/config"
	"github.com/bailey-sandbox/bailey/internal/gate/mint"
	"github.com/bailey-sandbox/bailey/internal/sandbox/native"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// inlet is the way into a sandbox whose ports are exposed and withdrawn while it
// stands. Each port has a gate of its own, so that the end of one is not that of
// others. The sockets stay here: no two processes can make others of them.
type inlet struct {
	sockets []*os.File
	mints   []*mint.Mint

	mu     sync.Mutex
	ports  []*Gate // of one port each
	closed bool
}

// begetTime is how long the kernel may take to connect two sockets.
const begetTime = 10 * time.Second

// keepInlet takes the way inside out of what the gate gets, and leads the ports
// that are exposed from the beginning through it.
func (g *Gate) keepInlet() {
	if g.inlet == nil {
		return
	}
	var mother *os.File
	g.listeners = slices.DeleteFunc(slices.Clone(g.listeners), func(l native.Listener) bool {
		switch l.Role {
		case config.RoleMint:
			mother = l.File
		case config.RoleSeed: // the next after its mint
			g.inlet.add(mother, l.File)
		default:
			return false
		}
		return true
	})
	for _, e := range g.exposed {
		g.lead(e)
	}
	g.exposed = nil
}

func (in *inlet) add(listener, seed *os.File) {
	in.sockets = append(in.sockets, listener, seed)
	if m, err := mint.New(int(listener.Fd()), int(seed.Fd())); err == nil {
		in.mints = append(in.mints, m)
	}
}

// beget makes a way inside for another process.
func (in *inlet) beget() (list []native.Listener, err error) {
	for _, m := range in.mints {
		listener, seed, err := m.Pair(time.Now().Add(begetTime))
		if err != nil {
			for _, l := range list {
				_ = l.File.Close()
			}
			return nil, err
		}
		list = append(list,
			native.Listener{Role: config.RoleMint, File: os.NewFile(uintptr(listener), "mint")},
			native.Listener{Role: config.RoleSeed, File: os.NewFile(uintptr(seed), "seed")})
	}
	if len(list) == 0 {
		return nil, errors.New("there is no way into the sandbox's network")
	}
	return list, nil
}

// Expose has a port of the host lead inside while the sandbox stands, and returns
// it as Exposed does.
func (g *Gate) Expose(want spec.Exposure) (string, error) {
	if g == nil || g.inlet == nil || len(g.inlet.mints) == 0 {
		return "", errors.New("the sandbox was made without a way into its network")
	}
	if g.program == "" {
		_, err := Program()
		return "", err
	}
	e, err := listen(want)
	if err != nil {
		return "", err
	}
	if !g.lead(e) {
		return "", errors.Join(native.ErrEnded, e.file.Close())
	}
	return e.text(), nil
}

// lead serves a port, unless the sandbox has ended.
func (g *Gate) lead(e exposed) bool {
	in := g.inlet
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return false
	}
	now := g.now()
	own := config.Config{Version: config.Version, Default: config.Deny, Sandbox: now.Sandbox, Limits: now.Limits}
	port := &Gate{program: g.program, config: own, exposed: []exposed{e}, beget: in.beget}
	in.ports = append(in.ports, port)
	port.Beside(g.process, nil, g.report)
	return true
}

// Withdraw ends what leads to a port inside, and the connections there. It says
// whether there was something.
func (g *Gate) Withdraw(inside uint16) bool {
	if g == nil || g.inlet == nil {
		return false
	}
	g.inlet.mu.Lock()
	var ended []*Gate
	g.inlet.ports = slices.DeleteFunc(g.inlet.ports, func(p *Gate) bool {
		if p.exposed[0].want.Inside != inside {
			return false
		}
		ended = append(ended, p)
		return true
	})
	g.inlet.mu.Unlock()
	for _, p := range ended {
		p.Close()
	}
	return len(ended) > 0
}

func (in *inlet) close() {
	if in == nil {
		return
	}
	in.mu.Lock()
	ports := in.ports
	in.ports, in.closed = nil, true
	in.mu.Unlock()
	var ending sync.WaitGroup
	for _, p := range ports {
		ending.Go(p.Close)
	}
	ending.Wait()
	for _, f := range in.sockets {
		_ = f.Close()
	}
}

// exposures are those of the gate itself and of its inlet.
func (g *Gate) exposures() []exposed {
	if g == nil {
		return nil
	}
	list := slices.Clone(g.exposed)
	if in := g.inlet; in != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, p := range in.ports {
			list = append(list, p.exposed...)
		}
	}
	return list
}
