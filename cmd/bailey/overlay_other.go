//go:build !linux

package main

import (
	"errors"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// workspace is where a command's changes to the project would go.
type workspace struct{}

func (r *request) openWorkspace(m *sandbox.Manager) (*workspace, error) {
	if m.WantsOverlay() {
		return nil, errors.New("overlay: only Linux can keep changes apart from the files themselves; run it without")
	}
	return nil, nil
}

func (*workspace) overlay() *spec.Overlay { return nil }

func (*workspace) abandon() {}

func (*workspace) announce(*spec.Spec) error { return nil }

func (*workspace) collect(*prepared) {}

func (*workspace) settle(_ *request, status int) int { return status }
