// Package account tells at the end of a run what the command has used, and which limits it
// met: for people and for programs.
package account
