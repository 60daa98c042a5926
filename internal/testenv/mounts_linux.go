package testenv

import (
	"os"
	"strings"
)

// HostMounts is the table of mounts of the calling process, without those of
// Docker engines and what is staged for their containers: other tests may have
// some at the same time.
func HostMounts() (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(table)) {
		if !strings.Contains(line, "/"+dockerDir) && !strings.Contains(line, " /run/bailey-docker") {
			kept.WriteString(line)
		}
	}
	return kept.String(), nil
}
