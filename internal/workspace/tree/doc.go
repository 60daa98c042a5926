// Package tree works on directory trees whose content is not trusted: it walks,
// copies, hashes and removes them by descriptors, never follows a symbolic link,
// and keeps what a file system keeps: modes, times, links, attributes, holes, and
// names that are any bytes.
package tree
