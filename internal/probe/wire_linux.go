package probe

// plan is what the prober is told, as JSON on its standard input.
type plan struct {
	// Token is in every name and file that the prober makes, so that what it
	// left can be told from what was there.
	Token    string    `json:"token"`
	Attempts []attempt `json:"attempts"`
}

// attempt is one thing to try. Paths are bytes: a file's name need not be text.
type attempt struct {
	Op     op     `json:"op"`
	Path   []byte `json:"path,omitempty"`
	To     []byte `json:"to,omitempty"`
	Number int    `json:"number,omitempty"`
}

// outcome is what the kernel answered.
type outcome struct {
	// Errno is that of the attack; 0 if it worked.
	Errno int `json:"errno"`
	// Second tells walls apart: the answer to a question about the same thing
	// that they would answer differently. See each op.
	Second int `json:"second,omitempty"`
	// Control is the errno of something alike that must work.
	Control int      `json:"control,omitempty"`
	Values  []string `json:"values,omitempty"`
}

// op is a kind of attempt.
type op string

const (
	// Files. Second is access(2) to the directory or file, which knows of mounts
	// and permissions but not of Landlock.
	opCreate  op = "create"  // make a file and leave it
	opMkdir   op = "mkdir"   // make a directory and leave it
	opSymlink op = "symlink" // make a symbolic link and leave it
	opMove    op = "move"    // make a file at To, rename it to Path and leave it
	opLink    op = "link"    // make a file at To, and a second name for it at Path
	opThrough op = "through" // make a file at To through a symbolic link at Path
	opAway    op = "away"    // rename Path to To, and back
	opRead    op = "read"    // open to read; Values: device and inode
	opWrite   op = "write"   // open to write, and write nothing; the same
	opChmod   op = "chmod"   // set the mode it has; the same
	opInode   op = "inode"   // Values: device and inode
	opSetuid  op = "setuid"  // give a file at Path the setuid bit; Control: another mode
	opNode    op = "node"    // make a device node at Path; Control: a FIFO

	// System calls. Second is the answer to arguments that no kernel accepts.
	opCall   op = "call"   // Path names it
	opSocket op = "socket" // Path names the kind
	opX32    op = "x32"
	opInt80  op = "int80" // Values: how the child ended
	opType   op = "type"  // type into a terminal; Control: ask its size

	// Network. Number is a port.
	opTCP      op = "tcp"      // connect to the address Path
	opUDP      op = "udp"      // send a datagram to the address Path
	opUnix     op = "unix"     // connect to the socket Path
	opOwnTCP   op = "own tcp"  // connect to a listener of one's own
	opOwnUnix  op = "own unix" // the same with a socket at Path
	opAnswered op = "answered" // nothing: the prober runs

	// Processes. Number is a process.
	opTrace     op = "trace"   // Control: a child
	opPeek      op = "peek"    // read memory; Control: one's own
	opKill      op = "kill"    // signal 0
	opPidfd     op = "pidfd"   //
	opChild     op = "child"   // start a child, look at it, and kill it
	opProcesses op = "pids"    // Values: processes that are not the prober's
	opLinger    op = "linger"  // leave a process behind that has left its session
	opInherited op = "inherit" // Values: descriptors that came with the exec
	opStatus    op = "status"  // Values: lines of /proc/self/status
	opSpaces    op = "spaces"  // Values: namespaces
	opVariables op = "env"     // Values: names of variables, and kinds of secrets
)
