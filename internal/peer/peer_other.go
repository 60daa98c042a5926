//go:build !linux

package peer

// Mode is that of Bailey's own sockets: reached by nobody but the user.
const Mode = 0o600
