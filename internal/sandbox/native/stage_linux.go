package native

import "unsafe"

// A stage is a program that performs a plan in an address space of its own, for
// who cannot share memory with the launcher. It is made like process 1: a few
// hundred bytes of code, and here the plan with all it points to.

func stageCode()

var _ = stageCode

func stageCodeAddr() unsafe.Pointer

// stageBase is where the plan stands in a stage: the bounds of the calls, the
// failure, the calls, and then the memory that they point to. The assembler code
// knows it.
const (
	stageBase  = 0x400000
	stageCalls = 32
)

// stageImage returns a complete ELF program that performs a plan. All that the
// plan points to must be memory of its own.
func stageImage(p *plan) []byte {
	code, memory := codeBytes(stageCodeAddr()), p.moved()
	size := codeAt + len(code)
	from := (size + segmentAlign - 1) &^ (segmentAlign - 1)
	img := make([]byte, from+len(memory))
	copy(img[codeAt:], code)
	copy(img[from:], memory)
	writeHeaders(img, segment{flags: readExecute, address: imageBase, size: size},
		segment{flags: readWrite, from: from, address: stageBase, size: len(memory)})
	return img
}

// moved returns the plan as it must look at stageBase.
func (p *plan) moved() []byte {
	const call = int(unsafe.Sizeof(op{}))
	end := stageCalls + len(p.ops)*call
	size := end
	for _, b := range p.blocks {
		size += len(b)
	}
	words := make([]uintptr, (size+7)/8) // aligned
	out := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	words[0], words[1] = stageBase+stageCalls, uintptr(stageBase+end)
	ops := unsafe.Slice((*op)(unsafe.Pointer(&out[stageCalls])), len(p.ops))
	for i := range p.ops {
		ops[i] = p.relocated(p.ops[i], end)
	}
	at := end
	for _, b := range p.blocks {
		at += copy(out[at:], b)
	}
	for _, v := range p.inner {
		words[(p.offset(uintptr(unsafe.Pointer(v)))+end)/8] = p.relocate(*v, end)
	}
	return out
}

// relocated is a call whose addresses are those of the moved plan, in which its
// memory begins at an offset.
func (p *plan) relocated(o op, begin int) op {
	for i := range o.arg {
		if o.ref&(1<<i|1<<(addressBits+i)) != 0 {
			o.arg[i] = p.relocate(o.arg[i], begin)
		}
	}
	if o.out != 0 {
		o.out = p.relocate(o.out, begin)
	}
	return o
}

func (p *plan) relocate(address uintptr, begin int) uintptr {
	return uintptr(stageBase + begin + p.offset(address))
}

// offset is where an address is in the plan's memory, block after block.
func (p *plan) offset(address uintptr) int {
	before := 0
	for _, b := range p.blocks {
		if start := uintptr(unsafe.Pointer(&b[0])); address >= start && address < start+uintptr(len(b)) {
			return before + int(address-start)
		}
		before += len(b)
	}
	panic("native: a plan to be moved points out of its memory")
}

// staged translates what a stage says about the call that failed.
func (p *plan) staged(m message) *failure {
	first, _ := p.bounds()
	return &failure{op: first + uintptr(m.slot) - (stageBase + stageCalls), errno: uintptr(m.pid)}
}
