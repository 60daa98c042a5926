// Package server is what the API does: sandboxes, commands in them, sessions and
// files, on the types that are generated from the API's description. How requests
// arrive is for package transport.
//
// A Server keeps nothing that it could not find again: what is decided is in the
// store, what runs is in a keeper process of the server's own, and what commands
// write is in files. So it can be killed at any moment; the next one goes on with
// the same sandboxes, and removes what belongs to none.
package server
