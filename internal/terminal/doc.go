// Package terminal stands between the caller's terminal and the terminal of a
// sandboxed command, which is another one: the command must not be able to type
// into the caller's, nor to read what is typed for someone else.
//
// A command whose stdin and stdout both are the terminal has it for itself, as
// an editor does: the caller's terminal is in raw mode for as long as the
// caller is in the foreground, and the line discipline of the command's own
// terminal turns Ctrl-C and Ctrl-Z into signals.
//
// In a pipeline the terminal is shared with other programs, which must get
// their Ctrl-C too. There it stays as it is until the command asks its own
// terminal for another mode, as a pager or a question for a password does, and
// goes back with it.
package terminal
