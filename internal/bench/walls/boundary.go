package walls

import (
	"fmt"
	"strings"
)

// View is what a command sees of the walls around it.
type View struct {
	UID        int               `json:"uid"`
	Sets       map[string]string `json:"sets"` // of capabilities, in hexadecimal, by name
	NoNewPrivs bool              `json:"no_new_privs"`
	Filter     bool              `json:"filter"`
	// Written are directories of the system in which a file could be made.
	Written []string `json:"written"`
	// Interfaces are those of the network besides loopback.
	Interfaces []string `json:"interfaces"`
	// Descriptors are those that the command has besides its streams.
	Descriptors []int `json:"descriptors"`
}

// Bounds are what was seen of the limits: whether the command had memory beyond its
// limit, and how many processors it kept busy.
type Bounds struct {
	MemoryMB int
	// Below and Beyond say whether half of the limit, and twice as much as it, could be
	// had.
	Below, Beyond bool
	CPUs          float64
	Busy          float64
}

// capabilitySets are all there are.
var capabilitySets = []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}

// tolerance is how much more of the processor may be seen than is allowed: a quota is
// handed out in slices of time, and what one processor can do is itself only seen.
const tolerance = 1.5

// Judge compares what was seen with what must be. A command may be called root inside, if
// that is no more than a name: in a user namespace of its own, without capabilities, it is
// the caller.
func Judge(v *View, b *Bounds, rootIsAName bool) []Wall {
	user := Wall{"user", "not root", fmt.Sprintf("uid %d", v.UID), v.UID != 0 || rootIsAName}
	if rootIsAName {
		user.Want = "any"
	}
	walls := []Wall{
		user,
		capabilities(v.Sets),
		{"no new privileges", "yes", yes(v.NoNewPrivs), v.NoNewPrivs},
		{"system call filter", "yes", yes(v.Filter), v.Filter},
		{"system directories", "read-only", oneOf("read-only", "written: ", v.Written), len(v.Written) == 0},
		{"network interfaces", "none", oneOf("none", "", v.Interfaces), len(v.Interfaces) == 0},
		{"descriptors besides the streams", "none", oneOf("none", "", texts(v.Descriptors)), len(v.Descriptors) == 0},
	}
	if b.MemoryMB > 0 {
		got := "held"
		switch {
		case b.Beyond:
			got = fmt.Sprintf("had %d MB", 2*b.MemoryMB)
		case !b.Below:
			got = fmt.Sprintf("did not have %d MB, so nothing is shown", b.MemoryMB/2)
		}
		walls = append(walls, Wall{"memory", fmt.Sprintf("at most %d MB", b.MemoryMB), got, b.Below && !b.Beyond})
	}
	if b.CPUs > 0 {
		walls = append(walls, Wall{"processors", fmt.Sprintf("at most %g", b.CPUs), fmt.Sprintf("%.2f busy", b.Busy), b.Busy > 0 && b.Busy <= b.CPUs*tolerance})
	}
	return walls
}

func capabilities(sets map[string]string) Wall {
	w := Wall{Name: "capabilities", Want: "five empty sets", Got: "five empty sets", Held: true}
	for _, name := range capabilitySets {
		if value := sets[name]; value == "" || strings.Trim(value, "0") != "" {
			w.Got, w.Held = fmt.Sprintf("%s is %q", name, value), false
		}
	}
	return w
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func oneOf(none, some string, list []string) string {
	if len(list) == 0 {
		return none
	}
	return some + strings.Join(list, ", ")
}

func texts(numbers []int) (list []string) {
	for _, n := range numbers {
		list = append(list, fmt.Sprint(n))
	}
	return list
}
