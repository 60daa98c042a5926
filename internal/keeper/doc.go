// Package keeper keeps resident sandboxes: those that stand between commands and
// outlive whoever asked for them.
//
// There is one keeper for each user, a process that the first request starts and
// that ends by itself when it has nothing to keep. It owns the sandboxes' brokers
// and the sockets to their first processes, so that with it, in whatever way it
// ends, every sandbox ends. Clients speak to it over a unix socket that only
// their user can open; who comes from within a sandbox is turned away.
//
// A sandbox has a name and a key, which is a hash of everything that is decided
// about it. A command for a name with another key gets a new sandbox under that
// name, and the old one takes no commands any more.
package keeper
