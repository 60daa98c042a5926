// Package peer tells who may be at the other end of Bailey's own unix sockets, that
// of the keeper and that of the server. Whoever reaches one can do all that its user
// can, so what runs in a sandbox must not, even if a policy shows it the socket by
// mistake.
//
// A process in a sandbox is told from others by what the kernel says about it. A broker,
// which connects in the stead of one, is a process like any other: it goes by the mark
// that the sockets carry, and leaves them alone.
package peer
