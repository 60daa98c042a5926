package main

import (
	"encoding/json"
	"time"

	"github.com/bailey-sandbox/bailey/internal/workspace/delta"
)

// listedWorkspace is a workspace as programs read it.
type listedWorkspace struct {
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Changes   string    `json:"changes"`
	Bytes     *int64    `json:"bytes"`
	Created   time.Time `json:"created"`
	Directory string    `json:"directory"`
	Error     string    `json:"error,omitempty"`
}

// listJSON writes one object for each workspace.
func (w *workspaces) listJSON(list []delta.Listed) error {
	e := json.NewEncoder(w.out)
	for i := range list {
		l := &list[i]
		out := listedWorkspace{Name: l.Name, State: stateOf(l), Created: l.Created, Directory: l.Target}
		if l.Err != nil {
			out.State, out.Error = "unreadable", l.Err.Error()
		} else {
			out.Changes, out.Bytes = w.changesOf(l), w.sizeOf(l)
		}
		if err := e.Encode(out); err != nil {
			return err
		}
	}
	return nil
}
