// Package change finds what a workspace changed in the directory it lies on,
// shows it, and carries it over, with a journal by which a carrying over that is
// cut short is finished, and one that was finished can be undone.
//
// What is in a workspace was written by the command in the sandbox, and the
// directory may be written by anybody meanwhile. Neither is trusted: all files
// are reached by descriptors below the two roots, and no symbolic link is ever
// followed.
package change
