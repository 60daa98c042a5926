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
// # Where Landlock does not hold
//
// The broker of a sandbox around this one performs calls in the stead of whoever
// makes them, and Landlock judges who performs a call. In a directory where that
// broker writes files, a rule of ours means nothing, not even about reading: a file
// can be opened for both. Prepare finds such places by trying, and refuses a Spec
// that would restrict anything there.
package landlock
