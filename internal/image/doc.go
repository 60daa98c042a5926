// Package image keeps OCI images as directories: each is unpacked once, under the digest
// of its configuration, and then only read. The command looks images up here; what gets
// them, from registries, layouts and archives, is package pull, which it does not link.
//
// A store is the user's own. Files in it belong to the user, whatever the image says, and
// no directory appears in it before it is whole.
package image
