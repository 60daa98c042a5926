package rulefs

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/pathrule"
)

// FS is the file system of one mount. Its root directory holds the views, and
// lists none.
type FS struct {
	fuse.RawFileSystem // answers ENOSYS to what is not here

	opener  opener
	notices notices
	watcher *watcher // nil where the kernel has none

	// maxHandles is how many descriptors of directories are kept. Beyond it they
	// are opened anew each time.
	maxHandles int

	// moves is held by who renames something, and for reading by who makes or
	// removes a name: so a name is judged by the path at which it is made, and
	// nothing is made in a directory between the decision that it may be renamed
	// and its new name.
	moves sync.RWMutex

	mu      sync.RWMutex
	nodes   map[uint64]*node
	files   map[fileID][]*node // the same by their file
	views   map[string]*view
	next    uint64
	handles int
}

// view is a directory of the host under rules.
type view struct {
	name  string
	root  *node
	rules atomic.Pointer[pathrule.Set]
	gone  atomic.Bool

	searching sync.Mutex // held by who looks for links, or changes the rules
	links     links
}

// Timeouts of what the kernel knows. Where changes are watched they only bound
// what nobody is told of: writes through a memory map of the host's, and through
// another name of a file.
var watchedTimeout = 10 * time.Second

const blindTimeout = time.Second

func newFS() *FS {
	fs := &FS{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		nodes:         make(map[uint64]*node),
		files:         make(map[fileID][]*node),
		views:         make(map[string]*view),
		next:          fuse.FUSE_ROOT_ID + 1,
		maxHandles:    handleLimit(),
	}
	fs.nodes[fuse.FUSE_ROOT_ID] = &node{id: fuse.FUSE_ROOT_ID, kind: unix.S_IFDIR, children: make(map[string]*node), lookups: 1}
	fs.notices.start()
	fs.watcher = newWatcher(fs)
	return fs
}

// handleLimit raises the limit of open files, and takes half of it.
func handleLimit() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 256
	}
	limit.Cur = limit.Max
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) // Go has done it already
	return int(min(limit.Cur/2, 1<<18))
}

func (fs *FS) String() string { return "bailey" }

// Init is called before the first request.
func (fs *FS) Init(server *fuse.Server) { fs.notices.serve(server) }

// get finds a node. It is nil if there is none, or its view has ended.
func (fs *FS) get(id uint64) *node {
	fs.mu.RLock()
	n := fs.nodes[id]
	fs.mu.RUnlock()
	if n == nil || n.view != nil && n.view.gone.Load() {
		return nil
	}
	return n
}

// parent finds the directory of a request about a name, and the name's path.
func (fs *FS) parent(id uint64, name string) (n *node, path string) {
	n = fs.get(id)
	if n == nil || n.view == nil {
		return nil, ""
	}
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	return n, join(n.path(), name)
}

// Lookup is asked once for each name until the kernel forgets the answer.
func (fs *FS) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId == fuse.FUSE_ROOT_ID {
		return fs.lookupView(name, out)
	}
	n, path := fs.parent(header.NodeId, name)
	if n == nil || name == "." || name == ".." {
		return fuse.Status(unix.ESTALE)
	}
	return status(fs.lookup(n, name, path, out))
}

// lookup answers about a name in a view. That there is nothing is an answer too,
// which the kernel keeps, unless rules say so: there may be others soon, and nobody
// knows then which names were asked for.
func (fs *FS) lookup(dir *node, name, path string, out *fuse.EntryOut) error {
	h, err := fs.directory(dir)
	if err != nil {
		return err
	}
	defer h.release()
	fs.watch(dir, h)
	rules := dir.view.rules.Load()
	d := rules.Decide(path)
	if !d.IsVisible(true) {
		return unix.ENOENT
	}
	var st unix.Stat_t
	err = unix.Fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && !d.IsVisible(st.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return unix.ENOENT
	}
	if errors.Is(err, unix.ENOENT) {
		out.SetEntryTimeout(fs.timeout(dir))
		return nil
	}
	if err != nil {
		return err
	}
	fs.findLinks(dir.view, rules, &st, d.Permission)
	fs.answer(fs.enter(dir, name, &st, d.Permission, rules), dir, &st, out)
	return nil
}

// lookupView is asked by this process only: nobody else knows the name.
func (fs *FS) lookupView(name string, out *fuse.EntryOut) fuse.Status {
	fs.mu.Lock()
	v := fs.views[name]
	if v != nil {
		v.root.lookups++
	}
	fs.mu.Unlock()
	if v == nil {
		return fuse.ENOENT
	}
	var st unix.Stat_t
	if err := fs.stat(v.root, &st); err != nil {
		return status(err)
	}
	fs.answer(v.root, v.root, &st, out)
	return fuse.OK
}

// answer tells the kernel of a node.
func (fs *FS) answer(n, dir *node, st *unix.Stat_t, out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.id, 1
	timeout := fs.timeout(dir)
	out.SetEntryTimeout(timeout)
	out.SetAttrTimeout(timeout)
	fs.attributes(n, st, &out.Attr)
}

func (fs *FS) timeout(dir *node) time.Duration {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	if dir.watched {
		return watchedTimeout
	}
	return blindTimeout
}

// enter returns the node of a file at a name, with one lookup more. What the name
// grants was decided by some rules; if there are others by now, they decide.
func (fs *FS) enter(dir *node, name string, st *unix.Stat_t, permission pathrule.Permission, by *pathrule.Set) *node {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if rules := dir.view.rules.Load(); rules != by {
		permission = rules.Permission(join(dir.path(), name))
	}
	id, kind := idOf(st), st.Mode&unix.S_IFMT
	if isShared(st) {
		permission = fs.left(dir.view, dir.view.rules.Load(), st, permission)
	}
	fits := func(n *node) bool {
		return n != nil && n.view == dir.view && n.file == id && n.kind == kind && n.allows() == permission
	}
	if old := dir.children[name]; fits(old) {
		old.names = max(old.names, uint64(st.Nlink))
		old.lookups++
		return old
	} else if old != nil {
		fs.unplace(old, dir, name)
	}
	n := fs.find(id, fits)
	if n == nil {
		n = fs.add(dir.view, id, kind, permission)
	}
	if kind == unix.S_IFDIR {
		for len(n.places) > 0 { // the host has moved it
			fs.unplace(n, n.places[0].parent, n.places[0].name)
		}
	}
	fs.place(n, dir, name)
	n.names = max(n.names, uint64(st.Nlink))
	n.lookups++
	return n
}

func (fs *FS) find(id fileID, fits func(*node) bool) *node {
	for _, n := range fs.files[id] {
		if fits(n) {
			return n
		}
	}
	return nil
}

// add makes a node. FS.mu is held.
func (fs *FS) add(v *view, id fileID, kind uint32, permission pathrule.Permission) *node {
	n := &node{id: fs.next, view: v, file: id, kind: kind}
	n.permission.Store(uint32(permission))
	if kind == unix.S_IFDIR {
		n.children = make(map[string]*node)
	}
	fs.next++
	fs.nodes[n.id] = n
	fs.files[id] = append(fs.files[id], n)
	return n
}

// place notes that a node is found at a name. FS.mu is held.
func (fs *FS) place(n, dir *node, name string) {
	if old := dir.children[name]; old != nil {
		fs.unplace(old, dir, name)
	}
	dir.children[name] = n
	// A new slice: others read the old one without the lock.
	n.places = append(n.places[:len(n.places):len(n.places)], place{dir, name})
	fs.shed(n)
}

// shed closes the descriptor of a file that is found by a name. FS.mu is held.
func (fs *FS) shed(n *node) {
	if !n.isDir() && len(n.places) > 0 && n.leaving == 0 {
		fs.drop(n)
	}
}

// drop closes a node's descriptor. FS.mu is held.
func (fs *FS) drop(n *node) {
	if n.handle != nil {
		n.handle.release()
		n.handle = nil
		fs.handles--
	}
}

// unplace notes that a node is not found at a name any more. FS.mu is held.
func (fs *FS) unplace(n, dir *node, name string) {
	if dir.children[name] == n {
		delete(dir.children, name)
	}
	places := make([]place, 0, len(n.places))
	for _, p := range n.places {
		if p.parent != dir || p.name != name {
			places = append(places, p)
		}
	}
	n.places = places
}

// Forget is told when the kernel has no more use for a node.
func (fs *FS) Forget(id, lookups uint64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.nodes[id]
	if n == nil || id == fuse.FUSE_ROOT_ID {
		return
	}
	n.lookups -= min(lookups, n.lookups)
	if n.lookups == 0 && (n.view.gone.Load() || n != n.view.root) {
		fs.remove(n)
	}
}

// remove forgets a node. Its places stay for those below it. FS.mu is held.
func (fs *FS) remove(n *node) {
	delete(fs.nodes, n.id)
	for _, p := range n.places {
		if p.parent.children[p.name] == n {
			delete(p.parent.children, p.name)
		}
	}
	list := fs.files[n.file]
	for i := range list {
		if list[i] == n {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if fs.files[n.file] = list; len(list) == 0 {
		delete(fs.files, n.file)
		fs.watcher.forget(n.file, n.handle)
	}
	fs.drop(n)
}

// show makes a view of a directory.
func (fs *FS) show(name string, dir *os.File, rules *pathrule.Set) error {
	fd, err := openat(int(dir.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	v := &view{name: name}
	v.rules.Store(rules)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	v.root = fs.add(v, idOf(&st), unix.S_IFDIR, rules.Permission("/"))
	v.root.handle = newHandle(fd)
	fs.handles++
	fs.views[name] = v
	return nil
}

// end ends a view: whoever still uses it gets errors.
func (fs *FS) end(name string) {
	fs.mu.Lock()
	v := fs.views[name]
	if v == nil {
		fs.mu.Unlock()
		return
	}
	delete(fs.views, name)
	v.gone.Store(true)
	var ids []uint64
	for id, n := range fs.nodes {
		if n.view == v {
			ids = append(ids, id)
			if n.lookups == 0 {
				fs.remove(n)
			}
		}
	}
	fs.mu.Unlock()
	for _, id := range ids {
		fs.notices.inode(id)
	}
	fs.notices.entry(fuse.FUSE_ROOT_ID, name)
}

// change gives a view other rules. When it returns, nothing that they forbid is
// answered any more, and the kernel has forgotten what it knew.
func (fs *FS) change(name string, rules *pathrule.Set) error {
	fs.mu.RLock()
	v := fs.views[name]
	fs.mu.RUnlock()
	if v == nil {
		return unix.ENOENT
	}
	v.searching.Lock()
	defer v.searching.Unlock()
	var found links
	if fs.hasShared(v) && rules.Least() < pathrule.Write {
		found = fs.search(v, rules)
	}
	fs.mu.Lock()
	v.rules.Store(rules)
	v.links = found
	for _, n := range fs.nodes {
		if n.view == v {
			fs.judge(n)
		}
	}
	fs.mu.Unlock()
	fs.notices.wait()
	return nil
}

// hasShared says whether a view has files with several names, that anybody met.
func (fs *FS) hasShared(v *view) bool {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	for _, n := range fs.nodes {
		if n.view == v && !n.isDir() && n.names > 1 {
			return true
		}
	}
	return false
}

// judge decides anew about a node, by the least that any of its names is granted,
// and has the kernel ask again. FS.mu is held.
func (fs *FS) judge(n *node) {
	rules := n.view.rules.Load()
	least := pathrule.Write
	if n == n.view.root {
		least = rules.Permission("/")
	}
	for _, p := range n.places {
		least = min(least, rules.Permission(join(p.parent.path(), p.name)))
	}
	if !n.isDir() && n.names > 1 {
		least = min(least, n.view.links.limit(rules, n.file, pathrule.Write))
	}
	n.permission.Store(uint32(least))
	for _, p := range n.places {
		fs.notices.entry(p.parent.id, p.name)
	}
	fs.notices.inode(n.id)
}

// status is an error as the kernel wants it.
func status(err error) fuse.Status { return fuse.ToStatus(err) }
