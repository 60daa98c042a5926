package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Change asks for other network rules or path permissions in a sandbox that
// stands.
type Change struct {
	Name string
	Spec spec.Spec
	// Viewed is the Spec with all its path permissions left to a view, for a sandbox that
	// has one. It is nil if the Spec has none: that they all go is never left unsaid.
	Viewed  *spec.Spec
	Environ []string // see Plan
}

func changeTo(name string, s, viewed *spec.Spec) Change { return Change{name, *s, viewed, needed(s)} }

// Reload gives the sandbox of a name the network rules and the path permissions
// of a Spec, which must be the same in everything else. The first hold for
// connections made from then on, the second also for what is open. For viewed see
// Change.
func Reload(name string, s, viewed *spec.Spec) error {
	c, _, err := ask(askReload, changeTo(name, s, viewed), false)
	if c == nil && err == nil {
		err = fmt.Errorf("%w: %s", ErrMissing, name)
	}
	if err != nil {
		return err
	}
	c.close()
	return nil
}

func (k *Keeper) reload(c *conn, r *received) error {
	var change Change
	if err := r.decode(&change); err != nil {
		return err
	}
	k.mu.Lock()
	b := k.boxes[change.Name]
	k.mu.Unlock()
	if b == nil {
		return fmt.Errorf("%w: %s", ErrMissing, change.Name)
	}
	<-b.ready
	if b.err != nil {
		return b.err
	}
	var fixed *fixedError
	err := b.reload(&change)
	if errors.As(err, &fixed) {
		if fixed.policy {
			err = fmt.Errorf("%w; if it was made with flags such as --settings or --preset, give them here as well: bailey --settings FILE box reload %s", err, b.name)
		}
		err = fmt.Errorf("%w; for a new one: bailey box stop %s", err, b.name)
	}
	if err != nil {
		return err
	}
	return c.send(tellDone, nil)
}

// frameKey is a hash of what cannot change while a sandbox stands.
func frameKey(s *spec.Spec) []byte { return keyOf(s.Frame(), nil) }

// fixedError is the error for what only a new sandbox can have.
type fixedError struct {
	error
	policy bool // for the policy that was given, which may be another than was meant
}

// reload changes the rules, and what the sandbox is known by: a command under the
// new policy finds it.
func (b *box) reload(c *Change) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	key := keyOf(&c.Spec, c.Environ)
	s := &c.Spec
	if b.spec.Rules != nil && s.Rules == nil && c.Viewed != nil {
		s = c.Viewed
	}
	s = spec.Closing(b.spec, s)
	if err := spec.Changeable(b.spec, s); err != nil {
		return &fixedError{error: err, policy: true}
	}
	// One that closes the network needs no environment, and the gate keeps its own.
	if c.Environ != nil && !slices.Equal(b.roots, chosen(c.Environ, rootVariables)) {
		return &fixedError{error: errors.New("SSL_CERT_FILE or SSL_CERT_DIR is not what it was when the sandbox was made, and the network gate has read its roots")}
	}
	if !bytes.Equal(b.frame, frameKey(s)) {
		return &fixedError{error: errors.New("files that the sandbox shows were replaced since it was made")}
	}
	if s.Gate == nil && s.Rules == nil && !s.Inlet {
		return errors.New("the sandbox has no network, and no rules that could change")
	}
	if s.Rules != nil {
		if err := b.view.Change(s.Rules.Lists); err != nil {
			return err
		}
	}
	if s.Gate != nil {
		told := s.Gate.Config
		told.Environ = c.Environ
		if err := b.gate.Reload(told); err != nil {
			return err
		}
		b.now = &s.Gate.Config
	}
	b.keeper.mu.Lock()
	defer b.keeper.mu.Unlock()
	b.key = key
	return nil
}
