// Package learn turns what a command did with files into what it would have to
// be granted: a Judge holds single calls against a Spec, and Propose folds those
// that the Spec would not have let through into a policy, as small as one would
// still want to read it.
//
// Nothing here decides what a command may do. A call is what the command asked
// for, and by the time the kernel performed it the command may have changed its
// mind; a proposal is for a person to look at.
//
// What looks like a secret is never proposed, nor are caches and directories
// that hold far more than a command can need. They are named in comments, so
// that somebody who wants one granted has to write it down.
package learn
