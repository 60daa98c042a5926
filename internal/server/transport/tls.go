package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Identity is the files that TLS needs.
type Identity struct {
	Certificate, Key string
	// ClientCA, if given, makes every client show a certificate of it.
	ClientCA string
}

// Config returns a configuration that takes up new files without a restart: a
// handshake after they have changed uses them. Files that cannot be used are
// logged, and those before stay.
func (id Identity) Config(log *slog.Logger) (*tls.Config, error) {
	r := &reloader{id: id, log: log}
	if err := r.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return r.current(), nil
		},
	}, nil
}

type reloader struct {
	id  Identity
	log *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	state  string // of the files that config was made from
}

// current returns the configuration for a handshake.
func (r *reloader) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state := r.id.state(); state != r.state {
		if err := r.load(); err != nil {
			r.log.Error("the new TLS files cannot be used; the old ones stay", "error", err)
			r.state = state // said once
		} else {
			r.log.Info("TLS files loaded")
		}
	}
	return r.config
}

func (r *reloader) load() error {
	state := r.id.state()
	certificate, err := tls.LoadX509KeyPair(r.id.Certificate, r.id.Key)
	if err != nil {
		return fmt.Errorf("TLS: %w", err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{certificate},
	}
	if r.id.ClientCA != "" {
		pem, err := os.ReadFile(r.id.ClientCA)
		if err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("TLS: %s has no certificate", r.id.ClientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	r.config, r.state = config, state
	return nil
}

// state changes when one of the files does.
func (id Identity) state() string {
	var all string
	for _, path := range []string{id.Certificate, id.Key, id.ClientCA} {
		if path == "" {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			all += fmt.Sprintf("%s %d %s\n", path, info.Size(), info.ModTime().Format(time.RFC3339Nano))
		}
	}
	return all
}
