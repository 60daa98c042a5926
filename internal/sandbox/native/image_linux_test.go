package native

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"
)

func TestIdentityMapMapsEachIDToItself(t *testing.T) {
	for _, test := range []struct{ name, own, want string }{
		{"initial namespace", "         0          0 4294967295\n", "0 0 4294967295\n"},
		{"container", "         0     100000      65536\n", "0 0 65536\n"},
		{"several ranges", "0 1000 1\n1 100000 65536\n", "0 0 1\n1 1 65536\n"},
		{"one id", "      1000       1000          1\n", "1000 1000 1\n"},
		{"empty", "", ""},
		{"damaged", "0 1\n5 6 7\n", "5 5 7\n"},
	} {
		if got := identityMap(test.own); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestImageIsAProgram(t *testing.T) {
	candidates := []string{"/bin/true", "", "/a/much/longer/name"}
	img := image(initParams{exec: candidates, terminal: 1, sigmask: 0x1234})
	f, err := elf.NewFile(bytes.NewReader(img))
	if err != nil {
		t.Fatal(err)
	}
	if f.Type != elf.ET_EXEC || f.Machine != elf.Machine(elfMachine) || f.Class != elf.ELFCLASS64 {
		t.Errorf("header: %+v", f.FileHeader)
	}
	var load, stack int
	for _, p := range f.Progs {
		if p.Flags&elf.PF_W != 0 && p.Flags&elf.PF_X != 0 {
			t.Errorf("segment %v can be written and executed", p.Type)
		}
		switch p.Type {
		case elf.PT_LOAD:
			load++
			if p.Flags != elf.PF_R|elf.PF_X || p.Filesz != uint64(len(img)) || p.Memsz != p.Filesz || p.Off != 0 {
				t.Errorf("load segment: %+v", p.ProgHeader)
			}
			if f.Entry < p.Vaddr+codeAt || f.Entry >= p.Vaddr+p.Memsz {
				t.Errorf("entry %#x is not in the code", f.Entry)
			}
			if p.Vaddr%p.Align != p.Off%p.Align {
				t.Errorf("address %#x and offset %#x differ modulo %#x", p.Vaddr, p.Off, p.Align)
			}
		case elf.PT_GNU_STACK:
			stack++
			if p.Flags != elf.PF_R|elf.PF_W {
				t.Errorf("stack flags %v", p.Flags)
			}
		}
	}
	if load != 1 || stack != 1 {
		t.Errorf("%d load and %d stack segments, want one each", load, stack)
	}
}

func TestImageHoldsItsParameters(t *testing.T) {
	candidates := []string{"/bin/true", "", "/a/much/longer/name"}
	img := image(initParams{exec: candidates, terminal: 1, sigmask: 0x1234})
	at := func(address uint64) uint64 { return binary.LittleEndian.Uint64(img[address:]) }
	table := at(paramsAt) - imageBase
	for i, want := range candidates {
		name := img[at(table+uint64(8*i))-imageBase:]
		if got := string(name[:bytes.IndexByte(name, 0)]); got != want {
			t.Errorf("candidate %d: got %q, want %q", i, got, want)
		}
	}
	if end := at(table + uint64(8*len(candidates))); end != 0 {
		t.Errorf("the list of candidates ends with %#x", end)
	}
	if flag, fd, mask := at(paramsAt+8), at(paramsAt+48), at(paramsAt+16); flag != 1 || fd != 1 || mask != 0x1234 {
		t.Errorf("terminal %d on %d, mask %#x", flag, fd, mask)
	}
	if img := image(initParams{terminal: -1}); binary.LittleEndian.Uint64(img[paramsAt+8:]) != 0 {
		t.Error("a terminal without one")
	}
}

func TestCodeFitsAPage(t *testing.T) {
	code := initBytes()
	if len(code) < 100 || codeAt+len(code) > 4096 || bytes.Contains(code, []byte(codeEnd)) {
		t.Errorf("the code of process 1 has %d bytes", len(code))
	}
	if paramsAt+56 > codeAt {
		t.Error("the parameters reach into the code")
	}
}
