package change

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// written is a change as programs read it.
type written struct {
	Path string `json:"path"`
	// Bytes is the path where that is no text.
	Bytes []byte        `json:"pathBytes,omitempty"`
	Kind  Kind          `json:"kind"`
	Old   *writtenEntry `json:"old,omitempty"`
	New   *writtenEntry `json:"new,omitempty"`
}

type writtenEntry struct {
	Type   FileType `json:"type"`
	Mode   string   `json:"mode"` // as chmod takes it
	Size   int64    `json:"size,omitempty"`
	Target string   `json:"target,omitempty"`
}

func writeEntry(e *Entry) *writtenEntry {
	if e == nil {
		return nil
	}
	return &writtenEntry{e.Type, fmt.Sprintf("%04o", e.Mode), e.Size, e.Target}
}

// WriteJSON writes the changes and their summary for programs.
func WriteJSON(w io.Writer, list []Change) error {
	out := struct {
		Summary Summary   `json:"summary"`
		Changes []written `json:"changes"`
	}{Summarize(list), make([]written, len(list))}
	for i, c := range list {
		out.Changes[i] = written{Path: c.Path, Kind: c.Kind, Old: writeEntry(c.Old), New: writeEntry(c.New)}
		if !utf8.ValidString(c.Path) {
			out.Changes[i].Bytes = []byte(c.Path)
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
