package conformance

import (
	"os/exec"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/foreground"
)

var kernelProperties = []Property{
	{Name: "nothing is mounted, and no namespace made", Try: makeNothing},
	{Name: "no device node is made", Try: makeDevice},
	{Name: "process 1 is not looked into", Try: lookIntoFirst},
	{Name: "calls that no sandbox needs are refused", Try: refuseCalls},
	{Name: "there are no privileges to be had", Try: noPrivileges},
	{Name: "the machine is not configured", Try: configureMachine},
}

func makeNothing(p *Place) {
	for _, role := range []string{"mount", "unshare"} {
		p.fails(p.role(base, role))
	}
	p.works(p.role(base, "fork", "1"))
}

func makeDevice(p *Place) {
	p.fails(p.role(base, "open-device"))
	p.works(p.shell(base, "head -c 1 /dev/zero >file"))
}

func lookIntoFirst(p *Place) {
	p.fails(p.role(base, "open", "/proc/1/mem"))
	p.works(p.role(base, "open", "/proc/self/mem"))
}

// refuseCalls has no control with the same runtime, since no policy allows these
// calls: it is that some of them do something without one.
func refuseCalls(p *Place) {
	p.works(p.role(base, "calls"))
	if err := exec.Command(p.program, roleWord, "calls").Run(); err == nil {
		p.Error("control: they are refused without a sandbox, so the probe shows nothing")
	}
}

func noPrivileges(p *Place) {
	got := p.run(base, "cat", "/proc/self/status")
	p.says(got, "NoNewPrivs:")
	for _, line := range privileges(got.stdout) {
		p.Error(line)
	}
	if len(privileges(p.read("/proc/self/status"))) == 0 {
		p.Error("control: there are none outside, so the probe shows nothing")
	}
}

// privileges are the lines that tell of some, in what the kernel says about a
// process. Which capabilities a program could bring is of no matter if none can
// bring any.
//
//	CapEff:	0000000000000000
//	NoNewPrivs:	1
//	Seccomp:	2
func privileges(status string) (list []string) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch key {
		case "CapInh", "CapPrm", "CapEff", "CapAmb":
			if mask, err := strconv.ParseUint(value, 16, 64); mask != 0 || err != nil {
				list = append(list, key+" "+value)
			}
		case "NoNewPrivs":
			if value != "1" {
				list = append(list, key+" "+value)
			}
		case "Seccomp":
			if value != "2" {
				list = append(list, key+" "+value)
			}
		}
	}
	return list
}

func configureMachine(p *Place) {
	for _, file := range []string{"/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/vm/drop_caches"} {
		p.fails(p.run(base, "sh", "-c", `: >>"$1"`, "sh", file))
	}
	p.works(p.run(base, "sh", "-c", `: >>"$1"`, "sh", "file"))
}

var limitProperties = []Property{
	{Name: "a limit of memory", Key: "resources.memory", Machine: true, Try: limitMemory},
	{Name: "a limit of processes", Key: "resources.pids", Machine: true, Try: limitProcesses},
	{Name: "a limit of disk", Key: "resources.disk", Machine: true, Try: limitDisk},
	{Name: "a limit of open files", Key: "resources.openFiles", Try: limitFiles},
	{Name: "a limit of time", Key: "resources.timeout", Try: limitTime},
}

// limited is the base with a limit.
func limited(key, value string) string {
	return strings.Replace(base, `{`, `{"resources": {"`+key+`": `+value+`}, `, 1)
}

func limitMemory(p *Place) {
	policy := limited("memory", `"96M"`)
	p.fails(p.role(policy, "allocate", "400"))
	p.says(p.role(policy, "allocate", "8"), "had 8")
	p.says(p.role(base, "allocate", "400"), "had 400")
}

func limitProcesses(p *Place) {
	policy := limited("pids", "64")
	p.fails(p.role(policy, "fork", "100"))
	p.says(p.role(policy, "fork", "3"), "had 3")
	p.says(p.role(base, "fork", "100"), "had 100")
}

func limitDisk(p *Place) {
	const line = `head -c 20000000 /dev/zero >"${TMPDIR:-/tmp}/big"`
	// The project is written on the host's disk, which nobody can limit.
	policy := strings.Replace(limited("disk", `"8M"`), `"filesystem": {`, `"filesystem": {"privateWrite": ["`+p.project+`"], `, 1)
	p.fails(p.shell(policy, line))
	p.works(p.shell(policy, `echo small >"${TMPDIR:-/tmp}/small"`))
	p.works(p.shell(base, line))
}

func limitFiles(p *Place) {
	policy := limited("openFiles", "64")
	if got := p.shell(policy, "ulimit -Hn"); got.stdout != "64\n" {
		p.Errorf("the limit is %q", got.stdout)
	}
	if got := p.shell(base, "ulimit -Hn"); got.stdout == "64\n" {
		p.Error("control: it is everybody's, so the probe shows nothing")
	}
}

func limitTime(p *Place) {
	policy := limited("timeout", `"200ms"`)
	if got := p.run(policy, "sleep", "1000"); got.status != foreground.TimedOut {
		p.Errorf("status %d, want %d", got.status, foreground.TimedOut)
	}
	p.works(p.run(limited("timeout", `"1h"`), "true"))
}
