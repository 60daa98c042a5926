// Package engine carries Specs out by programs that are not Bailey's: runc, crun,
// gVisor, Docker. What they need to be told by is too heavy for the command, so it
// compiles the Spec, and becomes baileyd with the Spec on a descriptor (HandOver),
// which finds the engine by its name and follows the command to its end (Main).
//
// An engine implements Engine in a package of its own below internal/sandbox, and
// cmd/baileyd lists it. Everything else is here and the same for all: the caller's
// terminal, signals, job control, the policy's timeout, the network gate, exit
// statuses and messages.
//
// An engine that cannot hold a part of a Spec refuses it by the policy's own key
// (see Refuse) before anything runs. It never leaves a part out.
package engine
