// Package watch tells what changes in a tree of files, as it is seen through the
// mounts of a sandbox. It asks the kernel to tell (inotify) of the directories of
// those mounts, not of the layers below them: overlayfs tells of writes above only,
// and what is hidden in the sandbox is hidden here.
//
// It keeps no descriptor of the tree, so that nothing that is watched is kept from
// ending. When the mounts go, as those of a sandbox that stops, the tree is opened
// anew, wherever it is to be seen then, and whoever watches is told to look again.
package watch
