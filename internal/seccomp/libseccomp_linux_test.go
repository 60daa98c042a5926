package seccomp

import (
	"encoding/binary"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testenv"
)

func TestDecisionsAgreeWithLibseccomp(t *testing.T) {
	testenv.Requires(t, testenv.Program("gcc"), testenv.File("/usr/include/seccomp.h"))
	program := filepath.Join(t.TempDir(), "libseccomp")
	if out, err := exec.Command("gcc", "-Wall", "-Werror", "-o", program, "testdata/libseccomp.c", "-lseccomp").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for _, families := range familySets {
		ours := Assemble(New(Options{Families: families}))
		theirs := libseccompFilter(t, program, families)
		compare := func(c call) {
			got, want := run(ours, c), theirs(c)
			if want == noFamily && got == noProtocol && c.nr == unix.SYS_SOCKET {
				want = noProtocol // the other filter has one answer for all sockets
			}
			if got != want {
				t.Errorf("call %d %#x of %v: ours says %#x, libseccomp's %#x", c.nr, c.args, families, got, want)
			}
		}
		for nr := range uint32(maxNr + 1) {
			for _, v := range []uint64{0, 1, 2, 16, garbage, ^uint64(0), unix.CLONE_NEWUSER, unix.S_IFCHR, unix.TIOCSTI} {
				compare(call{nr, auditArch, [6]uint64{v, v, v, v, v, v}})
			}
			compare(call{nr: nr, arch: otherArch32})
		}
		for _, s := range append(append(samples(), archSamples...), socketSamples(families)...) {
			compare(call{s.nr, auditArch, s.args})
		}
	}
}

// libseccompFilter runs the program for one set of families and returns what
// its two filters decide together.
func libseccompFilter(t *testing.T, program string, families []uint32) func(call) Action {
	dir := t.TempDir()
	main, sockets := filepath.Join(dir, "main"), filepath.Join(dir, "sockets")
	refused := slices.Concat(slices.Collect(maps.Values(refusedByName)), slices.Collect(maps.Values(archRefusedByName)))
	cmd := exec.Command(program, join(refused), join(slices.Collect(maps.Values(absentByName))), join(families), main, sockets)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("libseccomp: %v\n%s", err, out)
	}
	mainProg, socketProg := readFilter(t, main), readFilter(t, sockets)
	return func(c call) Action {
		if c.arch == auditArch && (c.nr == unix.SYS_SOCKET || c.nr == unix.SYS_SOCKETPAIR) {
			return run(socketProg, c)
		}
		return run(mainProg, c)
	}
}

func join(numbers []uint32) string {
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.Itoa(int(n)))
	}
	return strings.Join(out, ",")
}

func readFilter(t *testing.T, name string) []Instruction {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	prog := make([]Instruction, len(data)/8)
	if _, err := binary.Decode(data, binary.LittleEndian, prog); err != nil {
		t.Fatal(err)
	}
	return prog
}
