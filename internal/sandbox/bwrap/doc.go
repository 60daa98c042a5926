// Package bwrap carries Specs out through bubblewrap, for those who want the
// namespaces and mounts of a sandbox made by a program that others have audited.
//
// Bubblewrap makes the namespaces, shows the Spec's files of the host at their
// places and then becomes process 1 of package native, which does the rest as it
// does without bubblewrap; see native.Helper for who does what, and why. Nothing
// of a Spec is left out: what cannot be held this way is refused by Refuses.
package bwrap
