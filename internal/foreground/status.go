// Package foreground stands between a command in a sandbox and whoever started
// it: signals, job control and the caller's terminal reach the command as they
// would without a sandbox, and its end becomes an exit status.
package foreground

// Exit statuses that are not the command's own.
const (
	TimedOut    = 124 // the policy's timeout ended it, as timeout(1) says
	Own         = 125 // an error of Bailey's own; the command did not run
	NotRunnable = 126 // the program was found and could not be executed
	NotFound    = 127
	Signalled   = 128 // plus the number of the signal
)
