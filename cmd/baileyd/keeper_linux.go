package main

import (
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox/oci"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

// keep keeps sandboxes for who reaches a directory, or for the user if it is
// empty.
func keep(dir string) error {
	site := keeper.Own()
	if dir != "" {
		site = keeper.At(dir, "")
	}
	nursery := oci.NewNursery()
	return keeper.Serve(site, func(s *spec.Spec) (keeper.Waiting, error) {
		w, err := nursery.Raise(s)
		if err != nil {
			return nil, err // not a sandbox that is nil
		}
		return w, nil
	}, nursery.Open)
}
