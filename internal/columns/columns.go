// Package columns shows figures to people: in aligned columns, each in as few
// characters as it takes.
package columns

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Align returns one line for each row, its cells below those of the others.
func Align(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// Brief is a time in its largest unit.
func Brief(d time.Duration) string {
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

// Size is an amount of memory.
func Size(bytes int64) string {
	switch {
	case bytes < 1<<20:
		return fmt.Sprintf("%dK", bytes>>10)
	case bytes < 1<<30:
		return fmt.Sprintf("%dM", bytes>>20)
	}
	return fmt.Sprintf("%.1fG", float64(bytes)/(1<<30))
}

// Share is a part of a processor: 1 is all of one.
func Share(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }
