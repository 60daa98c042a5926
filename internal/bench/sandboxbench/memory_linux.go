package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/bench/walls"
)

// memoryOf sums up a process and all that descend from it, or only these.
func memoryOf(pid int, itself bool) *walls.Memory {
	m := &walls.Memory{}
	if itself {
		add(m, pid)
	}
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may just have ended
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				below := memoryOf(n, true)
				m.Processes += below.Processes
				m.RSS, m.PSS, m.USS = m.RSS+below.RSS, m.PSS+below.PSS, m.USS+below.USS
			}
		}
	}
	return m
}

// add adds what one process takes. One that has ended takes nothing.
func add(m *walls.Memory, pid int) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		return
	}
	rss, pss, uss := parseRollup(string(text))
	m.Processes++
	m.RSS, m.PSS, m.USS = m.RSS+rss, m.PSS+pss, m.USS+uss
}

// parseRollup reads lines such as "Pss:  1234 kB".
func parseRollup(text string) (rss, pss, uss int) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, _ := strconv.Atoi(f[1])
		switch f[0] {
		case "Rss:":
			rss = n
		case "Pss:":
			pss = n
		case "Private_Clean:", "Private_Dirty:":
			uss += n
		}
	}
	return rss, pss, uss
}
