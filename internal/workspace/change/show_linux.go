package change

import "io"

// WriteUnified writes the changes for people, text line by line. Where the reader
// is a terminal nothing in it can drive it.
func (c *Comparison) WriteUnified(w io.Writer, list []Change, terminal bool) error {
	for i := range list {
		text, err := unified(c, &list[i])
		if err != nil {
			return err
		}
		if terminal {
			text = harmless(text)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// WritePatch writes the changes as a patch that git apply takes. What git does not
// keep is left out: directories, pipes, modes but for the right to execute, and
// what is in a repository itself. Files of more than 64 MiB are refused before
// anything is written.
func (c *Comparison) WritePatch(w io.Writer, list []Change) error {
	return writePatch(w, c, list, func(text []byte) []byte { return text })
}

// WriteSafePatch is WritePatch for a terminal, which nothing in it can drive.
func (c *Comparison) WriteSafePatch(w io.Writer, list []Change) error {
	return writePatch(w, c, list, harmless)
}
