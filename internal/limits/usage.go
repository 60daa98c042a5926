package limits

import (
	"fmt"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// Usage is what a sandbox uses or has used. A number that is not known is -1.
type Usage struct {
	User, System time.Duration // processor time
	Throttled    time.Duration // time that the limit on it made processes wait
	Memory       int64         // bytes now
	PeakMemory   int64         // bytes at most
	// PeakOfOne says that PeakMemory is that of the largest process, because
	// nobody has counted for all of them.
	PeakOfOne bool
	Read      int64 // bytes from disks
	Written   int64 // bytes to disks
	Processes int   // processes and threads now, without process 1
	Peak      int   // processes and threads at most, without process 1
	// Killed are processes that were ended for want of memory, and Refused those
	// that were not started because there were too many.
	Killed, Refused int
	// Disk is how many bytes files in memory take, where those are limited.
	Disk int64
	// Full says that the space for files was used up at the end.
	Full bool
}

// Unknown is a Usage of which nothing is known.
func Unknown() Usage {
	return Usage{Memory: -1, PeakMemory: -1, Read: -1, Written: -1, Processes: -1, Peak: -1, Disk: -1}
}

// Hit is a limit that was met.
type Hit struct {
	Name  string // memory, pids, disk
	Count int    // how often, if that is known
	Text  string // for people: what happened, and what to do
}

// Hits lists the limits that were met.
func (u *Usage) Hits(l *spec.Limits) (list []Hit) {
	l.Each(func(key, value string) {
		h := Hit{Name: strings.TrimPrefix(key, "resources.")}
		var met string
		switch {
		case h.Name == "memory" && u.Killed > 0:
			h.Count, met = u.Killed, "the kernel killed "+plural(u.Killed, "process", "processes")
		case h.Name == "pids" && u.Refused > 0:
			h.Count, met = u.Refused, plural(u.Refused, "process was", "processes were")+" not started"
		case h.Name == "disk" && u.Full:
			met = "no space was left for files at the end"
		default:
			return
		}
		h.Text = fmt.Sprintf("%s: the limit of %s was reached: %s; for more: --%s", h.Name, value, met, h.Name)
		list = append(list, h)
	})
	return list
}

// Since is what was used after an earlier look, as far as it is met or summed up.
func (u Usage) Since(before Usage) Usage {
	u.User -= before.User
	u.System -= before.System
	u.Throttled -= before.Throttled
	u.Killed -= before.Killed
	u.Refused -= before.Refused
	return u
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
