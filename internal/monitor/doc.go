// Package monitor tells a person, or a program that reads along, what a command asks for
// and does not get: as it happens, and at the end what would allow it. Whoever runs the
// command hands it each call that names a file, what the broker refused and what the
// network gate told.
package monitor
