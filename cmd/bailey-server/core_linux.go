package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
	"github.com/bailey-sandbox/bailey/internal/server/transport"
	"github.com/bailey-sandbox/bailey/internal/store"
)

// core is what answers requests.
type core struct {
	server    *server.Server
	store     store.Store
	ephemeral bool
	log       *slog.Logger
}

func openCore(ctx context.Context, o *options, db store.Store, log *slog.Logger) (*core, error) {
	c := server.Config{Dir: o.state, Images: o.images, Store: db, Orphans: o.orphanTime, Pool: o.pool, Quota: o.quota, Usual: o.usual, Most: o.most, Log: log}
	if o.key != "" {
		key, err := filepath.Abs(o.key)
		if err != nil {
			return nil, err
		}
		c.Secrets = []string{key}
	}
	s, err := server.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	o.warnOf(os.Geteuid(), log)
	return &core{s, db, o.ephemeral, log}, nil
}

// warnOf tells what a server of root's does not hold. One that ends with a program has no
// other clients.
func (o *options) warnOf(user int, log *slog.Logger) {
	if user == 0 && !o.ephemeral {
		log.Warn("the server is root's, and so are commands in its sandboxes: clients may see files of root's alone that come to granted directories later",
			"remedy", "run it as a user of its own; see docs/server.md, As root, or not")
	}
}

func (c *core) services() transport.Services {
	s := c.server
	return transport.Services{Server: s, Codebases: s, Sandboxes: s, Execs: s, Sessions: s, Files: s}
}

func (c *core) collectors() []prometheus.Collector {
	return []prometheus.Collector{&figures{c.store, c.log}, c.server.Collector()}
}

// close leaves sandboxes to the next server, unless there will be none.
func (c *core) close() {
	if c.ephemeral {
		if err := c.destroyAll(); err != nil {
			c.log.Error("sandboxes could not be destroyed", "error", err)
		}
	}
	c.server.Close()
}

func (c *core) destroyAll() error {
	ctx := caller.With(context.Background(), caller.Local("local"))
	for {
		page, err := c.server.ListSandboxes(ctx, &baileyv1.ListSandboxesRequest{PageSize: 1000})
		if err != nil {
			return err
		}
		if len(page.GetSandboxes()) == 0 {
			return nil
		}
		for _, s := range page.GetSandboxes() {
			if _, err := c.server.DestroySandbox(ctx, &baileyv1.DestroySandboxRequest{SandboxId: s.GetId()}); err != nil {
				return err
			}
		}
	}
}
