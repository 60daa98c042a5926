package limits

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/spec"
)

// hierarchy is a mounted tree of control groups, and where the caller is in it.
type hierarchy struct {
	unified     bool     // version 2
	controllers []string // of version 1
	mount       string   // where it is mounted
	own         string   // the directory of the caller's group
	readOnly    bool
}

// parseLayout finds the hierarchies. A line of /proc/self/mountinfo is
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - cgroup2 source rw,nsdelegate
//
// and one of /proc/self/cgroup, for version 2 with neither number nor names,
//
//	4:memory:/user.slice
//	0::/user.slice/user-1000.slice
func parseLayout(mountinfo, cgroup string) (list []hierarchy) {
	for line := range strings.Lines(mountinfo) {
		front, back, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 6 || len(b) < 3 || b[0] != "cgroup" && b[0] != "cgroup2" {
			continue
		}
		h := hierarchy{unified: b[0] == "cgroup2", mount: spec.UnescapeMount(f[4])}
		options := strings.Split(b[2], ",")
		h.readOnly = hasOption(f[5], "ro") || slices.Contains(options, "ro")
		if !h.unified {
			h.controllers = options
		}
		if own, ok := h.find(spec.UnescapeMount(f[3]), cgroup); ok {
			h.own = own
			list = append(list, h)
		}
	}
	return list
}

// find returns the directory of the caller's group below a mount that shows the
// hierarchy from root on.
func (h *hierarchy) find(root, cgroup string) (string, bool) {
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, group, ok := strings.Cut(rest, ":")
		if !ok || h.unified != (names == "") {
			continue
		}
		if !h.unified && !sharesOne(strings.Split(names, ","), h.controllers) {
			continue
		}
		below, ok := strings.CutPrefix(group, strings.TrimSuffix(root, "/"))
		if !ok || below != "" && below[0] != '/' || strings.HasPrefix(below, "/..") {
			return "", false // the group is out of this mount's sight
		}
		return path.Join(h.mount, below), true
	}
	return "", false
}

func hasOption(options, name string) bool { return slices.Contains(strings.Split(options, ","), name) }

func sharesOne(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// field reads a number of a file with a name and a number on each line, as
// memory.events, cpu.stat and memory.oom_control are.
func field(text, name string) (int64, bool) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads a file that holds one number. The word max is none.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n, err == nil
}

// transferred adds up bytes over all disks. Version 2 has a line
//
//	254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0
//
// for each, version 1 one for each direction: 254:0 Read 4096.
func transferred(text string) (read, written int64) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for i, word := range f {
			key, value, ok := strings.Cut(word, "=")
			if !ok && i == 1 && len(f) == 3 {
				key, value = word, f[2]
			}
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
			case key == "rbytes" || key == "Read":
				read += n
			case key == "wbytes" || key == "Write":
				written += n
			}
		}
	}
	return read, written
}
