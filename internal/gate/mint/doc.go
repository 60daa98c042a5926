// Package mint makes sockets in the network of a sandbox, from outside of it. A
// socket belongs to the network that it was made in, and to make one in another
// network takes a process that goes there. But sockets that exist can be handed
// out, and beget others: of a connection from one to another of the same network,
// the accepted end is a new socket there, and once disconnected it is as good as
// one that was just made. So two sockets are enough for all that there will ever
// be, and neither a process inside nor any privilege is needed.
package mint
