//go:build !linux

package sandbox

import "github.com/bailey-sandbox/bailey/internal/spec"

func openAuthority(string, []string) (*spec.Authority, error) { return nil, ErrNoRuntime }
