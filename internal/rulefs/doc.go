// Package rulefs shows directories with path permissions that mounts cannot hold:
// those with patterns, and those under which a file has a name and a size but no
// content. It is a FUSE file system whose every answer is judged by package
// pathrule.
//
// One process, which the keeper starts, serves one mount for all its sandboxes.
// Each sandbox has a view: a directory of the mount with a name nobody can guess,
// which leads to a directory of the host through rules of its own. What a sandbox
// gets is a detached mount of its view alone.
//
// The process runs in a user namespace of its own, in which ids are what they are
// outside, and without capabilities but for a moment at a time: it opens files
// with the rights that the sandbox has, also where both are root. It keeps
// directories by descriptors and looks up one name at a time, without following
// links.
//
// Rules judge names, and a file with several is permitted the least that any of
// them is. A node of the file system is one file under one permission, with one
// cache: when the permission of a name changes, it is another node. So nothing that
// was cached when it could be read is ever shown when it cannot.
//
// Files are opened without a message: the kernel keeps what it knows of a file,
// its pages included, and asks again when it is told that something has changed.
// It is told by fanotify, which tells changes of the host's from this process's
// own, and where that cannot watch, what is known holds for a second.
package rulefs
