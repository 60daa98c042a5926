//go:build !linux

package seccomp

// Other systems have no seccomp; the tables are empty so that the package
// builds everywhere.
const (
	auditArch    = 0
	hasX32       = false
	maxNr        = 0
	nrClone      = 0
	nrIoctl      = 1
	nrSocket     = 2
	nrSocketpair = 3
	nrConnect    = 4
	nrExecve     = 5
	nrExecveat   = 6
	nrSendto     = 7
	nrSendmsg    = 8
	nrSendmmsg   = 9

	openDirectory = 0
)

var (
	modeCalls, archModeCalls []modeCall

	absent, refused, nameCalls, lookCalls, removeCalls         []uint32
	archRefused, archNameCalls, archLookCalls, archRemoveCalls []uint32
)
