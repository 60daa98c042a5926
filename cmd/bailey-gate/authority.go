package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/gate/authority"
)

// makeAuthority is for whoever starts a sandbox that has to trust the authority
// before the gate has signed anything.
func makeAuthority(args []string, stdout io.Writer) error {
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return errors.New("authority wants one absolute directory")
	}
	if _, err := authority.Open(args[0]); err != nil {
		return err
	}
	_, err := fmt.Fprintln(stdout, filepath.Join(args[0], authority.CertificateFile))
	return err
}
