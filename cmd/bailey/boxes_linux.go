package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/columns"
	"github.com/bailey-sandbox/bailey/internal/keeper"
	"github.com/bailey-sandbox/bailey/internal/sandbox"
	"github.com/bailey-sandbox/bailey/internal/spec"
)

func boxList(r *request) int {
	boxes, err := keeper.List()
	if err != nil {
		return fail(err)
	}
	if r.json {
		return boxListJSON(boxes)
	}
	rows := [][]string{{"NAME", "PID", "AGE", "IDLE", "PROCESSES", "MEMORY", "PORTS", "DIRECTORY", "COMMANDS"}}
	for i := range boxes {
		b := &boxes[i]
		rows = append(rows, []string{
			b.Name + leavingMark(b), fmt.Sprint(b.Pid), columns.Brief(b.Age), idleText(b), fmt.Sprint(b.Processes), memoryText(b),
			portsText(b), printable(b.Dir), commandsText(b),
		})
	}
	return answer(table(rows))
}

// memoryText is what a sandbox uses, and of how much.
func memoryText(b *keeper.Box) string {
	if b.Limits.Memory == 0 {
		return columns.Size(b.Memory)
	}
	return columns.Size(b.Memory) + "/" + columns.Size(b.Limits.Memory)
}

// leavingMark marks a sandbox that takes no commands any more.
func leavingMark(b *keeper.Box) string {
	if b.Leaving {
		return "*"
	}
	return ""
}

func idleText(b *keeper.Box) string {
	if len(b.Commands) > 0 {
		return "-"
	}
	return columns.Brief(b.Idle)
}

func commandsText(b *keeper.Box) string {
	var lines []string
	for _, argv := range b.Commands {
		lines = append(lines, printable(sandbox.Quote(argv)))
	}
	return strings.Join(lines, "; ")
}

func portsText(b *keeper.Box) string {
	if len(b.Ports) == 0 {
		return "-"
	}
	return strings.Join(b.Ports, " ")
}

// boxJSON is what --json prints.
type boxJSON struct {
	Name        string      `json:"name"`
	Pid         int         `json:"pid"`
	Dir         string      `json:"dir"`
	AgeSeconds  float64     `json:"ageSeconds"`
	IdleSeconds float64     `json:"idleSeconds"`
	IdleTimeout float64     `json:"idleTimeoutSeconds"`
	Processes   int         `json:"processes"`
	MemoryBytes int64       `json:"memoryBytes"`
	CPUSeconds  float64     `json:"cpuSeconds"`
	Connections int         `json:"connections"`
	Denials     int         `json:"denials"`
	LastDenial  string      `json:"lastDenial,omitempty"`
	Limits      spec.Limits `json:"limits,omitzero"`
	Leaving     bool        `json:"leaving,omitempty"`
	Ports       []string    `json:"ports,omitempty"`
	Launcher    int         `json:"launcher,omitempty"`
	Commands    [][]string  `json:"commands"`
}

func boxListJSON(boxes []keeper.Box) int {
	var text strings.Builder
	for i := range boxes {
		b := &boxes[i]
		line, err := json.Marshal(boxJSON{
			b.Name, b.Pid, b.Dir, b.Age.Seconds(), b.Idle.Seconds(), b.Linger.Seconds(), b.Processes, b.Memory,
			b.CPU.Seconds(), b.Connections, b.Denials, b.LastDenial, b.Limits, b.Leaving, b.Ports, b.Launcher, append([][]string{}, b.Commands...),
		})
		if err != nil {
			return fail(err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	return answer(text.String())
}

// boxTop shows what the sandboxes use: on a terminal as a screen with keys, which
// is more than this program has, otherwise as a table.
func boxTop(r *request) int {
	if !r.json && !r.keep.once && isTerminal(os.Stdin) && isTerminal(os.Stdout) && !dumb() {
		return r.become("baileyd", "top")
	}
	boxes, err := keeper.List()
	if err != nil {
		return fail(err)
	}
	singles := keeper.NewSingles()
	defer singles.Close()
	boxes = append(boxes, singles.List()...)
	if r.json {
		return boxListJSON(boxes)
	}
	rows := [][]string{{"NAME", "CPU", "MEMORY", "PROCESSES", "CONNECTIONS", "DENIED", "AGE", "COMMANDS"}}
	for i := range boxes {
		b := &boxes[i]
		share := float64(b.CPU) / float64(max(b.Age, 1)) // since it began
		rows = append(rows, []string{
			b.Name + leavingMark(b), columns.Share(share), memoryText(b), fmt.Sprint(b.Processes), fmt.Sprint(b.Connections),
			fmt.Sprint(b.Denials), columns.Brief(b.Age), commandsText(b),
		})
	}
	return answer(table(rows))
}

// dumb says whether the terminal can only write lines.
func dumb() bool {
	term := os.Getenv("TERM")
	return term == "" || term == "dumb"
}

func table(rows [][]string) string { return strings.Join(columns.Align(rows), "\n") + "\n" }

func boxStop(r *request, names []string) int {
	grace := r.keep.grace
	if grace == 0 {
		grace = defaultGrace
	}
	if err := keeper.End(keeper.Stop{Names: names, All: r.keep.all, Grace: grace}); err != nil {
		return fail(err)
	}
	return 0
}

// boxReload gives a sandbox the network rules of the policy that a command here
// would run under.
func boxReload(r *request, name string) int {
	m, err := r.managerInImage()
	if err != nil {
		return fail(err)
	}
	image, err := r.keptImage(name)
	if err != nil {
		return fail(err)
	}
	over, err := r.keptOverlay(m, name)
	if err != nil {
		return fail(err)
	}
	s, err := m.CompileBoxIn(image, over)
	if err != nil {
		return fail(err)
	}
	var viewed *spec.Spec
	if len(m.Loaded().Policy.Workspace.Rules) > 0 && s.Rules == nil {
		viewed, _ = m.CompileViewedIn(image, over) // where there can be none, it has none
	}
	if err := keeper.Reload(name, s, viewed); err != nil {
		return keptFailed(nil, err)
	}
	return 0
}

// keptImage is the image that a sandbox was made in, with the user that its commands are
// there, unless flags or the policy name another.
func (r *request) keptImage(name string) (*spec.Image, error) {
	asked := r.image.found
	boxes, err := keeper.List()
	i := slices.IndexFunc(boxes, func(b keeper.Box) bool { return b.Name == name && b.Launcher == 0 })
	if err != nil || i < 0 {
		return asked, err // that it is missing is said by who looks for it
	}
	made := boxes[i].Image
	if asked == nil || r.image.user == "" && made != nil && asked.Dir == made.Dir && asked.ID == made.ID {
		return made, nil
	}
	return asked, nil
}

func boxLogs(r *request, name string) int {
	err := keeper.Read(keeper.Logs{Name: name, Follow: r.keep.follow}, os.Stdout)
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return fail(err)
	}
	return 0
}
