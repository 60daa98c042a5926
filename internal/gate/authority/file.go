package authority

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"time"
)

// CertificateFile is the file in an authority's directory that a sandbox may
// read.
const CertificateFile = "authority.crt"

const secretFile = "authority.key"

// Open returns the authority kept in a directory, and makes one if there is
// none. Several gates may do so at once: one of them wins, and all use that.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	name := filepath.Join(dir, secretFile)
	a, err := load(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(name); err == nil {
			a, err = load(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	if err := publish(dir, a); err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return a, nil
}

// load reads the secret, if nobody else could have written or read it.
func load(name string) (*Authority, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 || !ownedByUs(info) {
		return nil, fmt.Errorf("%s can be reached by others: remove it, and a new one is made", name)
	}
	const most = 16 << 10
	data := make([]byte, most)
	n, err := f.Read(data)
	if err != nil {
		return nil, err
	}
	a, err := parse(data[:n])
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, and a new one is made", name, err)
	}
	if time.Now().Add(renewal).After(a.cert.NotAfter) {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
		return nil, fs.ErrNotExist
	}
	return a, nil
}

// create writes a new secret unless another process was faster. The file
// appears whole or not at all.
func create(name string) error {
	data, err := generate(owner())
	if err != nil {
		return err
	}
	temporary, err := writeTemporary(filepath.Dir(name), data, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	if err := os.Link(temporary, name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// owner is a name that people will see in the certificate.
func owner() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

// publish keeps the certificate where a sandbox can be given it.
func publish(dir string, a *Authority) error {
	name := filepath.Join(dir, CertificateFile)
	if data, err := os.ReadFile(name); err == nil && string(data) == string(a.PEM()) {
		return nil
	}
	temporary, err := writeTemporary(dir, a.PEM(), 0o644)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	return os.Rename(temporary, name)
}

func writeTemporary(dir string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, ".new-*") // made with mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync() // a name must not lead to half a key, not even after a crash
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
