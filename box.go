package bailey

import (
	"context"
	"fmt"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
)

// Box is a sandbox that stays. Commands in it see each other's processes and
// private files, such as those in /tmp, and what one leaves running goes on. A
// command costs what it costs outside: the walls stand already. The policy is
// the one of the moment in which the Box was opened, but see UpdateNetwork.
type Box struct {
	manager *Manager
	box     *sandbox.Box
	overlay *Overlay // that it lies on, or nil
}

// Open makes a Box. It ends with Close, with the Manager's Cleanup, or with this
// program, in whatever way that ends.
func (m *Manager) Open() (*Box, error) {
	return m.openBox(nil, func() (*sandbox.Box, error) { return m.m.Open() })
}

func (m *Manager) openBox(o *Overlay, open func() (*sandbox.Box, error)) (*Box, error) {
	if m.m == nil {
		return nil, fmt.Errorf("bailey: %w", errNotInitialized)
	}
	m.life.RLock()
	defer m.life.RUnlock()
	if m.closed {
		return nil, fmt.Errorf("bailey: %w", errCleanedUp)
	}
	b, err := open()
	if err != nil {
		return nil, fmt.Errorf("bailey: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boxes[b] = struct{}{}
	return &Box{m, b, o}, nil
}

// Command returns a Cmd that runs a program in the Box.
func (b *Box) Command(name string, args ...string) *Cmd {
	return b.CommandContext(context.Background(), name, args...)
}

// CommandContext is like Command; when ctx is done the command and its process
// group are killed.
func (b *Box) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	if ctx == nil {
		panic("bailey: nil context")
	}
	return &Cmd{Args: append([]string{name}, args...), ctx: ctx, launch: b.box.Start, forget: func(sandbox.Running) error { return nil }}
}

// UpdateNetwork changes which hosts commands in the Box may reach: connections
// that are made from now on see the network rules of the given policy, in JSON
// with comments, or if it is empty those that the Manager's own policy has now.
// Connections that stand go on. In everything else the policy must be the one
// that the Box was opened with; if it is not, or if it is no policy, nothing
// changes. Limits on the number of connections stay as they were.
func (b *Box) UpdateNetwork(policy string) error {
	c := b.manager.config
	if policy != "" {
		c.Policy, c.Settings, c.Preset = policy, "", ""
	}
	m := sandbox.New(c.core())
	err := m.Initialize()
	if err == nil {
		err = b.box.UpdateNetwork(m)
	}
	if err != nil {
		return fmt.Errorf("bailey: %w", err)
	}
	return nil
}

// Done is closed when the Box has ended.
func (b *Box) Done() <-chan struct{} { return b.box.Done() }

// Close ends everything in the Box and waits until nothing of it is left.
func (b *Box) Close() error {
	b.box.Close()
	b.manager.mu.Lock()
	delete(b.manager.boxes, b.box)
	b.manager.mu.Unlock()
	return b.overlay.boxClosed(b)
}
