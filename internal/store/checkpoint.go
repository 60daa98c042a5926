package store

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

const (
	// checkpointEvery is after how many commits the log is copied into the
	// database.
	checkpointEvery = 500
	// mostPages is how long the log may become while there is always somebody who
	// commits: 64 MB. Then they wait once.
	mostPages = 16 << 10
)

// checkpoints copy the log into the database, on a connection of their own:
// nobody who commits waits for the disk. That the log is long costs only space,
// and time when the database is opened after a crash.
type checkpoints struct {
	own, write *sql.DB
	commits    atomic.Int64
	due        chan struct{}
	end        context.CancelFunc
	work       sync.WaitGroup
}

func startCheckpoints(file string, write *sql.DB) (*checkpoints, error) {
	own, err := openFile(file, "deferred", 1)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	c := &checkpoints{own: own, write: write, due: make(chan struct{}, 1), end: end}
	c.work.Go(func() { c.run(ctx) })
	return c, nil
}

// grew is called after each commit.
func (c *checkpoints) grew() {
	if c.commits.Add(1)%checkpointEvery != 0 {
		return
	}
	select {
	case c.due <- struct{}{}:
	default: // one is under way, and another comes after it
	}
}

func (c *checkpoints) run(ctx context.Context) {
	for {
		select {
		case <-c.due:
		case <-ctx.Done():
			return
		}
		// What fails now is done by the next one, or by Close.
		if pages, err := checkpoint(ctx, c.own, "PASSIVE"); err == nil && pages > mostPages {
			_, _ = checkpoint(ctx, c.write, "RESTART")
		}
	}
}

// stop ends checkpoints. Whoever closes a database last makes one more.
func (c *checkpoints) stop() {
	c.end()
	c.work.Wait()
	_ = c.own.Close()
}

// checkpoint returns how long the log is, in pages.
func checkpoint(ctx context.Context, db *sql.DB, mode string) (pages int, err error) {
	var busy, done int
	err = db.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &pages, &done)
	return pages, err
}
