package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

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
			b.Name + leavingMark(b), fmt.Sprint(b.Pid), brief(b.Age), idleText(b), fmt.Sprint(b.Processes), memoryText(b),
			portsText(b), printable(b.Dir), commandsText(b),
		})
	}
	return answer(table(rows))
}

// memoryText is what a sandbox uses, and of how much.
func memoryText(b *keeper.Box) string {
	if b.Limits.Memory == 0 {
		return size(b.Memory)
	}
	return size(b.Memory) + "/" + size(b.Limits.Memory)
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
	return brief(b.Idle)
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
	Limits      spec.Limits `json:"limits,omitzero"`
	Leaving     bool        `json:"leaving,omitempty"`
	Ports       []string    `json:"ports,omitempty"`
	Commands    [][]string  `json:"commands"`
}

func boxListJSON(boxes []keeper.Box) int {
	var text strings.Builder
	for i := range boxes {
		b := &boxes[i]
		line, err := json.Marshal(boxJSON{
			b.Name, b.Pid, b.Dir, b.Age.Seconds(), b.Idle.Seconds(), b.Linger.Seconds(), b.Processes, b.Memory,
			b.CPU.Seconds(), b.Limits, b.Leaving, b.Ports, append([][]string{}, b.Commands...),
		})
		if err != nil {
			return fail(err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	return answer(text.String())
}

// boxTop shows what the sandboxes use, on a terminal again and again.
func boxTop() int {
	const interval = 2 * time.Second
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	live := isTerminal(os.Stdout)
	var before map[int]time.Duration
	for {
		boxes, err := keeper.List()
		if err != nil {
			return fail(err)
		}
		text := topText(boxes, before, interval)
		if !live {
			return answer(text)
		}
		before = make(map[int]time.Duration, len(boxes))
		for i := range boxes {
			before[boxes[i].Pid] = boxes[i].CPU
		}
		const home = "\x1b[H\x1b[2J"
		if status := answer(home + text + "\nCtrl-C ends\n"); status != 0 {
			return status
		}
		select {
		case <-tick.C:
		case <-interrupted:
			return 0
		}
	}
}

// topText shows the share of a processor since the last look, or before there
// was one, since each sandbox began.
func topText(boxes []keeper.Box, before map[int]time.Duration, interval time.Duration) string {
	rows := [][]string{{"NAME", "CPU", "MEMORY", "PROCESSES", "AGE", "COMMANDS"}}
	for i := range boxes {
		b := &boxes[i]
		used, over := b.CPU, b.Age
		if last, ok := before[b.Pid]; ok {
			used, over = b.CPU-last, interval
		}
		share := 100 * float64(used) / float64(max(over, 1))
		rows = append(rows, []string{
			b.Name + leavingMark(b), fmt.Sprintf("%.0f%%", share), memoryText(b), fmt.Sprint(b.Processes), brief(b.Age), commandsText(b),
		})
	}
	return table(rows)
}

// table aligns columns.
func table(rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// brief is a time in its largest unit.
func brief(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func size(bytes int64) string {
	switch {
	case bytes < 1<<20:
		return fmt.Sprintf("%dK", bytes>>10)
	case bytes < 1<<30:
		return fmt.Sprintf("%dM", bytes>>20)
	}
	return fmt.Sprintf("%.1fG", float64(bytes)/(1<<30))
}

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
	m, err := r.manager()
	if err != nil {
		return fail(err)
	}
	s, err := m.CompileBox()
	if err != nil {
		return fail(err)
	}
	if err := keeper.Reload(name, s); err != nil {
		return keptFailed(nil, err)
	}
	return 0
}

func boxLogs(r *request, name string) int {
	err := keeper.Read(keeper.Logs{Name: name, Follow: r.keep.follow}, os.Stdout)
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return fail(err)
	}
	return 0
}
