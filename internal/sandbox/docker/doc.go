// Package docker carries Specs out by a Docker engine on this machine, with runc or with
// gVisor's runsc.
//
// What a Spec means for a container is worked out by package oci; here it is said in the
// engine's words, and nothing is left to its defaults. A container that was made is looked
// at before it is started (Check), and its first process looks at the mounts that it finds
// before the command runs.
//
// The engine is a daemon, so a container would outlive whoever asked for it. A guard, a
// process of its own, makes the container and everything it needs, and takes all of it
// down when the command ends or when nobody is left at the other end of its socket. What
// a guard leaves that was killed itself, whoever started it removes, and if that was killed
// as well, the next start.
//
// An engine follows symbolic links in the paths it is given, and it knows no mounts that
// change owners. So the guard opens what is granted itself, and mounts it in a directory
// that only root can enter (see oci.Furnish); the engine is shown that. This takes root.
package docker
