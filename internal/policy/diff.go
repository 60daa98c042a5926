package policy

import (
	"strings"

	"github.com/bailey-sandbox/bailey/internal/plain"
)

// Diff shows how new differs from old, line by line, with a little context. It
// is empty if they are equal. Lines are made safe to show on a terminal.
func Diff(old, new string) string {
	a, b := strings.Split(old, "\n"), strings.Split(new, "\n")
	var lines []diffLine
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		lines = append(lines, diffLine{' ', a[head]})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lines = append(lines, diffMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, l := range a[len(a)-tail:] {
		lines = append(lines, diffLine{' ', l})
	}
	return renderDiff(lines)
}

type diffLine struct {
	mark byte
	text string
}

// diffMiddle keeps a longest common subsequence. Files too long for the table
// are shown as replaced.
func diffMiddle(a, b []string) []diffLine {
	const largest = 4 << 20
	var out []diffLine
	if len(a)*len(b) > largest {
		for _, l := range a {
			out = append(out, diffLine{'-', l})
		}
		for _, l := range b {
			out = append(out, diffLine{'+', l})
		}
		return out
	}
	// common[i][j] is the length of that subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, diffLine{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, diffLine{'-', a[i]})
			i++
		default:
			out = append(out, diffLine{'+', b[j]})
			j++
		}
	}
	return out
}

func renderDiff(lines []diffLine) string {
	const context = 2
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.mark == ' ' {
			continue
		}
		for k := max(0, i-context); k <= min(len(lines)-1, i+context); k++ {
			near[k] = true
		}
	}
	var s strings.Builder
	for i, l := range lines {
		if !near[i] {
			continue
		}
		if i > 0 && !near[i-1] {
			s.WriteString("...\n")
		}
		s.WriteByte(l.mark)
		s.WriteString(" " + plain.Text(l.text) + "\n")
	}
	return s.String()
}
