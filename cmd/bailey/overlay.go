package main

import (
	"errors"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// overlayRequest is what the flags about changes to the project ask for.
type overlayRequest struct {
	name string // of the workspace to keep them in; empty if one is to be found
	dry  bool   // they are shown and thrown away
}

// overlayFlags are those of runFlags that verbs have as well.
func overlayFlags() (list []flag) {
	for _, f := range runFlags {
		if f.long == "overlay" || f.long == "dry-run" {
			list = append(list, f)
		}
	}
	return list
}

func setOverlay(r *request, v string) error {
	mode := "overlay"
	r.grants.Workspace.Mode = &mode
	if v == "" {
		return nil
	}
	name, ok := strings.CutPrefix(v, "keep:")
	if !ok {
		return errors.New("is not keep:NAME")
	}
	r.overlay.name = name
	return delta.ValidName(name)
}

func setDryRun(r *request, _ string) error {
	r.overlay.dry = true
	return setOverlay(r, "")
}

func (o *overlayRequest) check() error {
	if o.dry && o.name != "" {
		return errors.New("--dry-run keeps nothing; --overlay=keep:NAME does")
	}
	return nil
}

// supposedOverlay is the overlay of a command that is not run, or by a runtime that
// will refuse it.
func supposedOverlay(m *sandbox.Manager) (*spec.Overlay, error) {
	if !m.WantsOverlay() {
		return nil, nil
	}
	project, err := m.OverlaidProject()
	if err != nil {
		return nil, err
	}
	dir := sandbox.DataDir(m.Home()) + "/workspaces/NEW/"
	return &spec.Overlay{Source: project, Lowers: []string{project}, Upper: dir + "upper", Work: dir + "work"}, nil
}
