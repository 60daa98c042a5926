// Package hooks lets agents that run outside of any sandbox run each of their
// shell commands in one. It knows where each agent keeps its hooks, edits those
// files without touching anything else in them, and gives the answers that the
// agents understand.
//
// An agent that cannot have a command rewritten is told to write it differently.
// Whatever goes wrong, the command is not run: a hook that fails is taken for
// consent by most agents, so that every command line of a hook ends with an exit
// status that is not.
package hooks
