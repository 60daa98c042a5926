// Package delta keeps workspaces: directories, one for each, in which the kernel's
// overlayfs collects what a sandbox writes on top of a directory or of layers.
// It knows where they are, who uses one just now, and what each is based on; what
// is in them, and what layers are made of, is for the packages above.
//
// The command links it, so it links nothing that the command does not.
package delta
