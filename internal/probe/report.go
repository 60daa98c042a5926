package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Result is what became of an attack.
type Result string

const (
	Stopped Result = "stopped"
	Through Result = "GOT THROUGH"
	Unclear Result = "cannot tell" // its control failed, so nothing was shown
	Granted Result = "granted"     // the policy allows it
	Absent  Result = "not applicable"
)

// Wall is what stopped an attack.
type Wall string

const (
	WallMount        Wall = "mount"
	WallLandlock     Wall = "landlock"
	WallSeccomp      Wall = "seccomp"
	WallCapabilities Wall = "capabilities"
	WallBroker       Wall = "broker"
	WallNetwork      Wall = "network namespace"
	WallProcesses    Wall = "pid namespace"
	WallNamespaces   Wall = "namespaces"
	WallProcessOne   Wall = "process 1"
	WallDescriptors  Wall = "launcher"
	WallEnvironment  Wall = "environment filter"
	WallPermissions  Wall = "file permissions"
	WallKernel       Wall = "kernel"
)

// Finding is one attack and what became of it.
type Finding struct {
	Attack string `json:"attack"`
	Result Result `json:"result"`
	Wall   string `json:"wall,omitempty"`
	// How says how that is known.
	How string `json:"how"`
	// Control is what worked in the same run, to show that the attack was tried.
	Control string `json:"control,omitempty"`
}

// Report is a whole audit.
type Report []Finding

// Held says whether no attack got through, and none was left undecided.
func (r Report) Held() bool { return r.count(Through) == 0 && r.count(Unclear) == 0 }

func (r Report) count(want Result) (n int) {
	for i := range r {
		if r[i].Result == want {
			n++
		}
	}
	return n
}

// Summary is the last line of an audit.
func (r Report) Summary() string {
	stopped, granted, absent := r.count(Stopped), r.count(Granted), r.count(Absent)
	text := fmt.Sprintf("%d of %d attacks were stopped", stopped, len(r)-granted-absent)
	if granted > 0 {
		text += fmt.Sprintf("; the policy grants %d more", granted)
	}
	if absent > 0 {
		text += fmt.Sprintf("; %d not applicable here", absent)
	}
	return text
}

// Text is a table for people, the worst first.
func (r Report) Text(coloured bool) string {
	sorted := slices.Clone(r)
	slices.SortStableFunc(sorted, func(a, b Finding) int { return a.Result.rank() - b.Result.rank() })
	var result, attack, wall int
	for i := range sorted {
		f := &sorted[i]
		result, attack, wall = max(result, len(f.Result)), max(attack, len(f.Attack)), max(wall, len(f.Wall))
	}
	var b strings.Builder
	for i := range sorted {
		f := &sorted[i]
		word := fmt.Sprintf("%-*s", result, f.Result)
		fmt.Fprintf(&b, "%s  %-*s  %-*s  %s\n", paint(word, f.Result.colour(), coloured), attack, f.Attack, wall, f.Wall, f.How)
	}
	colour := green
	if !r.Held() {
		colour = red
	}
	return b.String() + paint(r.Summary(), colour, coloured) + "\n"
}

const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	dim    = "\x1b[2m"
)

func paint(text, colour string, coloured bool) string {
	if !coloured {
		return text
	}
	return colour + text + "\x1b[0m"
}

func (r Result) rank() int {
	return slices.Index([]Result{Through, Unclear, Granted, Stopped, Absent}, r)
}

func (r Result) colour() string {
	switch r {
	case Stopped:
		return green
	case Granted:
		return yellow
	case Absent:
		return dim
	}
	return red
}

// JSON is one object a line, in the order of the attacks.
func (r Report) JSON() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range r {
		if err := e.Encode(&r[i]); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}
