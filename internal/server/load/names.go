package load

// What is measured, as reports call it.
const (
	forkExec     = "fork and exec of /bin/true, no server"
	execConnect  = "exec of /bin/true, Connect"
	execKey      = "exec of /bin/true, Connect, with an idempotency key"
	execREST     = "exec of /bin/true, REST with JSON"
	execSession  = "exec of /bin/true in a session"
	createStart  = "create and start a sandbox"
	createPooled = "create and start a sandbox, from the pool"
	destroy      = "destroy a sandbox"
	read1K       = "read a file of 1 KB"
	read1M       = "read a file of 1 MB"
	write1K      = "write a file of 1 KB"

	idleCount    = "sandboxes idle at once, all answering"
	idleInit     = "PSS of a sandbox's process, mean"
	idleServer   = "PSS of server and keeper"
	idleKernel   = "memory of the kernel for each sandbox"
	idleDestroy  = "destroying all of them"
	idleAnswered = "a command in each of them"
	soakCycles   = "cycles of create, exec and destroy"
)

// published is what AgentFense says of itself, for 2 cores and 4 GB. What it does
// not say is not here.
var published = map[string]string{
	execConnect: "p50 20 ms, p99 50 ms; 1000+/s",
	createStart: "create p50 150 ms, p99 300 ms, and start p50 80 ms, p99 150 ms (bwrap)",
	read1K:      "p50 0.5 ms, p99 2 ms; 5000+/s",
	read1M:      "p50 15 ms, p99 30 ms",
	write1K:     "3000+/s",
	idleCount:   "120+",
	idleInit:    "about 5 MB and 2 processes for each sandbox",
}
