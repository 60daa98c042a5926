package rulefs

import (
	"encoding/binary"
	"os"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watcher hears what the host does to directories that the kernel knows entries
// of. Events say which process caused them, so that what this one does itself is
// not taken for a change.
type watcher struct {
	fs   *FS
	file *os.File

	mu    sync.Mutex
	dirs  map[string]fileID // by the name that events have for them
	names map[fileID]string
	fsids map[uint64]unix.Fsid // by device
}

// watchedEvents are asked for, of each directory.
const watchedEvents = unix.FAN_CREATE | unix.FAN_DELETE | unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO |
	unix.FAN_MODIFY | unix.FAN_ATTRIB | unix.FAN_ONDIR | unix.FAN_EVENT_ON_CHILD

// newWatcher returns nil where the kernel does not let this user watch.
func newWatcher(fs *FS) *watcher {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|unix.FAN_REPORT_DFID_NAME, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	w := &watcher{
		fs: fs, file: os.NewFile(uintptr(fd), "fanotify"),
		dirs: make(map[string]fileID), names: make(map[fileID]string), fsids: make(map[uint64]unix.Fsid),
	}
	go w.run()
	return w
}

// watch makes sure that changes of a directory's entries are heard of. It is
// called before they are looked at.
func (fs *FS) watch(n *node, h *handle) {
	fs.mu.RLock()
	done := n.watched
	fs.mu.RUnlock()
	if done || fs.watcher == nil || fs.watcher.add(n.file, h) != nil {
		return
	}
	fs.mu.Lock()
	n.watched = true
	fs.mu.Unlock()
}

func (w *watcher) add(id fileID, h *handle) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.names[id]; ok {
		return nil
	}
	name, err := w.nameOf(id, h)
	if err != nil {
		return err
	}
	if err := unix.FanotifyMark(int(w.file.Fd()), unix.FAN_MARK_ADD|unix.FAN_MARK_ONLYDIR, watchedEvents, unix.AT_FDCWD, h.link()); err != nil {
		return err
	}
	w.dirs[name], w.names[id] = id, name
	return nil
}

// nameOf is the name that events have for a directory.
func (w *watcher) nameOf(id fileID, h *handle) (string, error) {
	fsid, ok := w.fsids[id.dev]
	if !ok {
		var st unix.Statfs_t
		if err := unix.Fstatfs(h.fd, &st); err != nil {
			return "", err
		}
		fsid = st.Fsid
		w.fsids[id.dev] = fsid
	}
	fh, _, err := unix.NameToHandleAt(h.fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return "", err
	}
	return eventName(fsid.Val, fh.Type(), fh.Bytes()), nil
}

func eventName(fsid [2]int32, kind int32, handle []byte) string {
	b := make([]byte, 12, 12+len(handle))
	binary.NativeEndian.PutUint32(b, uint32(fsid[0]))
	binary.NativeEndian.PutUint32(b[4:], uint32(fsid[1]))
	binary.NativeEndian.PutUint32(b[8:], uint32(kind))
	return string(append(b, handle...))
}

// forget stops watching a directory that the kernel knows no more. What is still
// heard of it concerns nobody. There may be no descriptor of it, and then the
// mark stays with the directory until this process ends.
func (w *watcher) forget(id fileID, h *handle) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, ok := w.names[id]
	if !ok {
		return
	}
	delete(w.names, id)
	delete(w.dirs, name)
	if h != nil {
		_ = unix.FanotifyMark(int(w.file.Fd()), unix.FAN_MARK_REMOVE|unix.FAN_MARK_ONLYDIR, watchedEvents, unix.AT_FDCWD, h.link())
	}
}

func (w *watcher) run() {
	buf := make([]byte, 256<<10)
	own := int32(os.Getpid())
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		foreign := false
		for rest := buf[:n]; len(rest) >= int(unsafe.Sizeof(unix.FanotifyEventMetadata{})); {
			m := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&rest[0]))
			if int(m.Event_len) < int(m.Metadata_len) || int(m.Event_len) > len(rest) {
				return
			}
			if m.Mask&unix.FAN_Q_OVERFLOW != 0 {
				w.fs.forgetAll()
			} else if m.Pid != own {
				foreign = true
				w.heard(m.Mask, rest[m.Metadata_len:m.Event_len])
			}
			rest = rest[m.Event_len:]
		}
		if !foreign {
			<-time.NewTimer(lull).C
		}
	}
}

// lull is how long nobody listens after events that were all of this process's own
// making. A sandbox that writes makes several with each call, and to be woken by
// every one of them would slow it down.
const lull = time.Millisecond

// heard takes an event apart: the directory's name, and that of the entry.
//
//	struct fanotify_event_info_header { u8 info_type, pad; u16 len; };
//	__kernel_fsid_t fsid;
//	struct file_handle { u32 handle_bytes; i32 handle_type; u8 f_handle[]; };
//	char name[];
func (w *watcher) heard(mask uint64, info []byte) {
	const fsidAt, handleAt, bytesAt = 4, 12, 20
	if len(info) < bytesAt || info[0] != unix.FAN_EVENT_INFO_TYPE_DFID_NAME {
		return
	}
	ne := binary.NativeEndian
	size := int(ne.Uint32(info[handleAt:]))
	if bytesAt+size > len(info) {
		return
	}
	fsid := [2]int32{int32(ne.Uint32(info[fsidAt:])), int32(ne.Uint32(info[fsidAt+4:]))}
	name := eventName(fsid, int32(ne.Uint32(info[handleAt+4:])), info[bytesAt:bytesAt+size])
	entry, _, _ := strings.Cut(string(info[bytesAt+size:]), "\x00")
	w.mu.Lock()
	id, ok := w.dirs[name]
	w.mu.Unlock()
	if ok {
		w.fs.hostChanged(id, entry, mask)
	}
}

// hostChanged has the kernel forget what a change of the host's has made untrue.
func (fs *FS) hostChanged(dir fileID, name string, mask uint64) {
	const names = unix.FAN_CREATE | unix.FAN_DELETE | unix.FAN_MOVED_FROM | unix.FAN_MOVED_TO
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	for _, n := range fs.files[dir] {
		if name != "" && name != "." {
			if child := n.children[name]; child != nil {
				fs.notices.inode(child.id)
			}
			if mask&names != 0 {
				fs.notices.entry(n.id, name)
			}
		}
		if mask&names != 0 || name == "" || name == "." {
			fs.notices.inode(n.id)
		}
	}
}

// forgetAll is for when events were lost.
func (fs *FS) forgetAll() {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	for _, n := range fs.nodes {
		for name := range n.children {
			fs.notices.entry(n.id, name)
		}
		fs.notices.inode(n.id)
	}
}
