package rulefs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// notices tells the kernel to forget what it knows. That waits for locks which
// requests hold while they are answered, so it is done apart from them.
type notices struct {
	server *fuse.Server

	mu    sync.Mutex
	some  sync.Cond
	queue []notice
	added uint64 // how many there were
	told  uint64 // how many of them the kernel knows
}

// notice is about a node, or about a name in it.
type notice struct {
	node    uint64
	name    string
	isEntry bool
}

func (q *notices) start() { q.some.L = &q.mu }

// serve begins to tell.
func (q *notices) serve(server *fuse.Server) {
	q.server = server
	go q.run()
}

func (q *notices) run() {
	for {
		q.mu.Lock()
		for len(q.queue) == 0 {
			q.some.Wait()
		}
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		for _, n := range batch {
			// What the kernel does not know any more is no error of ours.
			if n.isEntry {
				q.server.EntryNotify(n.node, n.name)
			} else {
				q.server.InodeNotify(n.node, 0, 0)
			}
		}
		q.mu.Lock()
		q.told += uint64(len(batch))
		q.mu.Unlock()
		q.some.Broadcast()
	}
}

func (q *notices) add(n notice) {
	q.mu.Lock()
	q.queue = append(q.queue, n)
	q.added++
	q.mu.Unlock()
	q.some.Broadcast()
}

// inode has attributes and pages of a node forgotten.
func (q *notices) inode(node uint64) { q.add(notice{node: node}) }

// entry has a name forgotten.
func (q *notices) entry(dir uint64, name string) { q.add(notice{dir, name, true}) }

// wait returns when the kernel knows of all that was added before.
func (q *notices) wait() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for until := q.added; q.told < until; {
		q.some.Wait()
	}
}

// changed tells of a file that was changed through one node to all others, of
// other views or permissions.
func (fs *FS) changed(n *node) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	if list := fs.files[n.file]; len(list) > 1 {
		for _, other := range list {
			if other != n {
				fs.notices.inode(other.id)
			}
		}
	}
}

// renamed tells of a name that was changed through one node of a directory to all
// others.
func (fs *FS) renamed(dir *node, name string) {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	if list := fs.files[dir.file]; len(list) > 1 {
		for _, other := range list {
			if other != dir {
				fs.notices.entry(other.id, name)
				fs.notices.inode(other.id)
			}
		}
	}
}
