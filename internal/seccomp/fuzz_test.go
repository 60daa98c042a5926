package seccomp

import (
	"encoding/binary"
	"testing"
)

// source deals out a fuzzer's bytes, and zeros when they have run out.
type source struct{ data []byte }

func (s *source) next() uint32 {
	var b [4]byte
	s.data = s.data[copy(b[:], s.data):]
	return binary.LittleEndian.Uint32(b[:])
}

func (s *source) small(n uint32) uint32 { return s.next() % n }

// profile reads a profile: sorted rules without duplicates, of a size whose
// jumps are short.
func (s *source) profile() Profile {
	p := Profile{Arch: s.next(), X32: s.small(2) == 1, MaxNr: s.small(1 << 31)}
	if s.small(2) == 1 {
		p.MaxNr %= 600
	}
	actions := [...]Action{Allow, Fail(eperm), Fail(enosys), KillProcess}
	nr := uint32(0)
	for range s.small(24) {
		nr += s.small(5)
		r := Rule{Nr: nr, Else: actions[s.small(4)]}
		for range s.small(4) {
			c := Check{Arg: int(s.small(6)), Mask: s.next(), Value: s.small(8), Then: actions[s.small(4)]}
			c.Test = Test(s.small(4))
			if s.small(2) == 1 {
				c.Mask = all
			}
			r.Checks = append(r.Checks, c)
		}
		p.Rules = append(p.Rules, r)
		nr++
	}
	return p
}

func FuzzAssembledProgramDecidesAsTheProfileReads(f *testing.F) {
	f.Add([]byte{})
	f.Add(binary.LittleEndian.AppendUint32(nil, auditArch))
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &source{data}
		p := s.profile()
		prog := Assemble(p)
		numbers := []uint32{0, 1, p.MaxNr, p.MaxNr + 1, x32Bit, x32Bit + 1, ^uint32(0), s.next()}
		for _, r := range p.Rules {
			numbers = append(numbers, r.Nr, r.Nr+1)
		}
		var args [6]uint64
		for i := range args {
			args[i] = uint64(s.next())<<32 | uint64(s.small(16))
		}
		for _, nr := range numbers {
			for _, arch := range []uint32{p.Arch, p.Arch + 1} {
				c := call{nr, arch, args}
				if got, want := run(prog, c), decide(p, c); got != want {
					t.Fatalf("%+v under %+v: got %#x, want %#x", c, p, got, want)
				}
			}
		}
	})
}

// Filters whose halves are farther apart than a comparison reaches.
func TestLongFiltersDecideAsTheyRead(t *testing.T) {
	for _, checks := range []int{0, 1, 3, 9} {
		p := Profile{Arch: auditArch, MaxNr: 400}
		for nr := range uint32(300) {
			r := Rule{Nr: nr + nr/7, Else: Fail(uint16(1 + nr%5))} // with gaps
			for i := range checks {
				r.Checks = append(r.Checks, Check{Arg: i % 6, Mask: all, Value: uint32(i), Then: Fail(uint16(10 + i))})
			}
			p.Rules = append(p.Rules, r)
		}
		prog := Assemble(p)
		for nr := range uint32(410) {
			for arg := range uint64(10) {
				c := call{nr: nr, arch: auditArch, args: [6]uint64{arg, arg, arg, arg, arg, arg}}
				if got, want := run(prog, c), decide(p, c); got != want {
					t.Fatalf("%d checks: call %d with %d: got %x, want %x", checks, nr, arg, got, want)
				}
			}
		}
	}
}
