// Package landlock is the runtime that needs no namespaces, in two forms. Where
// there is no sandbox, [PrepareAlone] has the command confine itself in a process
// of its own, with this one as its broker; see [Alone].
//
// Inside of a sandbox it confines the calling thread with Landlock, a system call
// filter, resource limits and a clean environment, and becomes the command: there
// is no process in between, so status, signals, streams and job control are the
// command's own. The rest of this comment is about that.
//
// It cannot mount anything and has no broker, so much of a Spec is beyond it. What
// the place it runs in holds already need not be held again: inside another
// sandbox of Bailey's most is. [Prepare] looks, part by part, and believes only
// what it sees: the mount table, what the kernel answers to a call that cannot do
// any harm, and what it answers a thread that Landlock leaves nothing to. What
// neither Landlock nor the place holds is refused, all of it in one error, before
// anything runs.
//
// Landlock only grants. Where something below a grant is denied, the names beside
// it are granted one by one as they are at the start, and a name that appears there
// later is not among them.
//
// # The gate without a network namespace
//
// An [Alone] whose network is granted in part is in the network of everybody here.
// There no address and no port could be the gate's alone: Landlock grants ports
// and not addresses, a proxy that listens serves whoever finds it, and whatever
// the kernel is left to connect goes where the caller's memory says by then. So
// nothing listens, and the command connects nothing. It may make sockets of TCP,
// and its every connect is the broker's to answer, which does not touch the
// command's socket: it makes a pair of sockets that are connected with each other
// over loopback, hands one to the gate with a copy of the address that was wanted,
// and puts the other in the place of the command's. The gate decides about that
// address as about any connection that it captures; the one that the proxy
// variables name is the proxy.
//
// What else could send is closed, each by itself:
//
//   - Landlock grants the command neither connecting nor binding of TCP, on any
//     port, should a connect ever reach the kernel.
//   - The filter knows no sockets but those of TCP: no UDP, so no names but by the
//     gate, no raw ones, no MPTCP, which Landlock does not judge, no other family.
//     Unix sockets are there in connected pairs only.
//   - Sending with MSG_FASTOPEN connects as well, and is refused, and so is the
//     option of that name. Nothing is listened on and nothing accepted.
//   - Options by which packets of a connected socket go elsewhere, by a source
//     route or through another device, cannot be set.
//   - io_uring, which no filter sees into, is absent in every sandbox.
//   - Streams that are sockets must be connected unix sockets.
//
// The pair needs a listener for a moment, on a port that nobody knows; who comes
// there and is not the other half is turned away. All of it takes no call that
// containers forbid: pidfd_getfd, with which the broker could connect the command's
// own socket, is one.
//
// # Where Landlock does not hold
//
// The broker of a sandbox around this one performs calls in the stead of whoever
// makes them, and Landlock judges who performs a call. In a directory where that
// broker writes files, a rule of ours means nothing, not even about reading: a file
// can be opened for both. Prepare finds such places by trying. If the Spec lets
// nothing of the host be written there, it has that broker do less for this process,
// for good (see [broker.Lent]), and tries again; otherwise it refuses a Spec that would
// restrict anything there.
package landlock
