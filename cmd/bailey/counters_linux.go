package main

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// counters are those of a sandbox's network. They outlive it while they are
// open.
type counters struct{ fd int }

// openCounters opens the counters of a process's network namespace. Without them
// nothing is said about it.
func openCounters(pid int) counters {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/net/snmp", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return counters{}
	}
	return counters{fd}
}

// wasTried says whether a program has tried to reach another machine: packets
// found no route, or a name server that is not there was asked on loopback.
func (c counters) wasTried() bool {
	if c.fd == 0 {
		return false
	}
	buf := make([]byte, 8<<10)
	n, err := unix.Read(c.fd, buf)
	if err != nil {
		return false
	}
	text := string(buf[:n])
	return counter(text, "Ip:", "OutNoRoutes") > 0 || counter(text, "Udp:", "NoPorts") > 0
}

// counter reads a value of /proc/net/snmp, where each protocol has a line of
// names and a line of values:
//
//	Udp: InDatagrams NoPorts InErrors
//	Udp: 2 0 0
func counter(text, protocol, name string) int {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != protocol {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, n := range names {
			if n == name && i < len(fields) {
				value, _ := strconv.Atoi(fields[i])
				return value
			}
		}
	}
	return 0
}
