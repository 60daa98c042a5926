// Command bailey runs a command with exactly the files, network, secrets and
// resources it was granted.
package main

import (
	"errors"
	"os"
	"strconv"

	"github.com/bailey-sandbox/bailey/internal/foreground"
	"github.com/bailey-sandbox/bailey/internal/trace"
)

// Exit statuses that are not the command's own.
const (
	exitTimeout     = foreground.TimedOut
	exitOwn         = foreground.Own
	exitNotRunnable = foreground.NotRunnable
	exitNotFound    = foreground.NotFound
)

// isProgram is false in the tests of this package.
var isProgram = true

// init is the whole program. The sandbox dies with the thread that started it,
// so this goroutine must stay on one thread. While packages are initialised
// the runtime keeps it on the main thread; runtime.LockOSThread in main would
// mean the same, but starts one more thread, which every command would pay for.
func init() {
	if !isProgram {
		return
	}
	becomeCommand()
	log := openTrace()
	log.Mark("program start")
	status := start(os.Args[1:], log)
	discard() // if it came to nothing
	if err := log.Close(); err != nil {
		say(tagError, "BAILEY_TRACE: "+err.Error())
	}
	os.Exit(status)
}

func main() {}

func openTrace() *trace.Log {
	file := os.Getenv("BAILEY_TRACE")
	if file == "" {
		return nil
	}
	begin, _ := strconv.ParseInt(os.Getenv("BAILEY_TRACE_START"), 10, 64) // 0: not known
	return trace.Open(file, begin)
}

// start does what the arguments ask for and returns the exit status.
func start(args []string, log *trace.Log) int {
	r, err := parse(args)
	if err != nil {
		return fail(err)
	}
	switch {
	case r.help && r.verb == nil:
		return answer(helpText())
	case r.help:
		return answer(verbHelp(r.verb))
	case r.version:
		return answer(versionLine())
	case r.verb != nil && r.hasLine && !r.verb.takesLine():
		return fail(errors.New(r.verb.name + " takes no line of shell; -c goes with a command, and with: bailey shell"))
	case r.verb != nil:
		discard()
		r.hintProgram()
		return r.verb.run(r)
	}
	return r.runCommand(log)
}

// runCommand runs the command of the arguments and returns the exit status.
func (r *request) runCommand(log *trace.Log) int {
	err := r.openImage()
	if err == nil && len(r.args) == 0 && !r.hasLine && !insideSandbox() {
		_, err = r.managerInImage() // whose image may have a command of its own
	}
	if err != nil {
		return fail(err)
	}
	argv, err := r.command()
	if err == nil && r.agent != "" && !insideSandbox() {
		err = r.makeState()
	}
	if err != nil {
		return fail(err)
	}
	return launch(r, argv, log)
}
