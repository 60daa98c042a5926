// Package views starts the process that package rulefs is served by, and asks it
// for views. It links nothing of FUSE, so that the command can have it.
package views
