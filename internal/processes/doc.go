// Package processes tells which processes there are, by /proc: whose child one is,
// and in which namespace.
package processes
