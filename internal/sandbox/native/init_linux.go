package native

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initCode is the code of process 1. It is never called here: its bytes are
// copied into the program that image makes.
func initCode()

var _ = initCode

func initCodeAddr() unsafe.Pointer

// Where the program is loaded, and where in it things stand. The assembler
// code knows paramsAt.
const (
	imageBase = 0x200000
	paramsAt  = 0xb0 // after the ELF header and two program headers
	codeAt    = 0x100
)

// codeEnd marks the end of initCode.
const codeEnd = "\xba\x11\xe7\xe4\xba\x11\xe7\xe4"

// initParams is what process 1 is told.
type initParams struct {
	exec     []string // programs to try, in order
	terminal int      // descriptor of the command's terminal, or -1
	sigmask  uint64   // the command's blocked signals
	resident bool     // it waits for requests, and the rest is not used
	guest    bool     // resident, and started by a container runtime
}

// Flags of a command, and of process 1.
const (
	flagTerminal = 1 << iota // the command has a terminal
	flagSession              // it is started by a session of its own
	flagResident             // process 1 waits for requests
	flagGuest                // it does not end with who started it
)

// image returns a complete ELF program: headers, parameters, the code of
// process 1, and the candidates' names.
func image(p initParams) []byte {
	le := binary.LittleEndian
	code := initBytes()
	table := codeAt + (len(code)+7)&^7
	names := table + 8*(len(p.exec)+1)
	size := names
	for _, s := range p.exec {
		size += len(s) + 1
	}
	img := make([]byte, size)

	writeHeaders(img, segment{flags: readExecute, address: imageBase, size: size})
	par := img[paramsAt:]
	le.PutUint64(par[0:], uint64(imageBase+table))
	switch {
	case p.guest:
		le.PutUint64(par[8:], flagResident|flagGuest)
	case p.resident:
		le.PutUint64(par[8:], flagResident)
	case p.terminal >= 0:
		le.PutUint64(par[8:], flagTerminal)
		le.PutUint64(par[48:], uint64(p.terminal))
	}
	le.PutUint64(par[16:], p.sigmask)
	copy(par[24:40], "bailey-init")
	le.PutUint64(par[40:], ^uint64(0)) // the set of all signals

	copy(img[codeAt:], code)
	at := names
	for i, s := range p.exec {
		le.PutUint64(img[table+8*i:], uint64(imageBase+at))
		at += copy(img[at:], s) + 1
	}
	return img
}

// segment is a part of a program that is loaded.
type segment struct {
	flags   uint32
	from    int // in the file
	address int
	size    int
}

// Flags of segments.
const (
	readExecute = 5
	readWrite   = 6
)

// writeHeaders makes a program of a file that has its code at codeAt in the first
// segment. The headers of one segment leave room up to paramsAt.
func writeHeaders(img []byte, segments ...segment) {
	const loaded, stack = 1, 0x6474e551 // PT_LOAD, PT_GNU_STACK
	le := binary.LittleEndian
	copy(img, "\x7fELF\x02\x01\x01")
	le.PutUint16(img[16:], 2) // ET_EXEC
	le.PutUint16(img[18:], elfMachine)
	le.PutUint32(img[20:], 1)
	le.PutUint64(img[24:], imageBase+codeAt) // entry
	le.PutUint64(img[32:], 64)               // program headers
	le.PutUint16(img[52:], 64)
	le.PutUint16(img[54:], 56)
	le.PutUint16(img[56:], uint16(len(segments)+1))
	at := img[64:]
	for _, s := range segments {
		le.PutUint32(at[0:], loaded)
		le.PutUint32(at[4:], s.flags)
		le.PutUint64(at[8:], uint64(s.from))
		le.PutUint64(at[16:], uint64(s.address))
		le.PutUint64(at[24:], uint64(s.address))
		le.PutUint64(at[32:], uint64(s.size))
		le.PutUint64(at[40:], uint64(s.size))
		le.PutUint64(at[48:], segmentAlign)
		at = at[56:]
	}
	le.PutUint32(at[0:], stack) // which is not executable
	le.PutUint32(at[4:], readWrite)
}

// segmentAlign is the largest page there is.
const segmentAlign = 0x10000

// initBytes returns the code of process 1.
func initBytes() []byte { return codeBytes(initCodeAddr()) }

// codeBytes returns code up to its end mark.
func codeBytes(at unsafe.Pointer) []byte {
	const most = 4096 // the text segment goes on for longer than this
	text := unsafe.Slice((*byte)(at), most)
	for i := 0; i+len(codeEnd) <= most; i++ {
		if string(text[i:i+len(codeEnd)]) == codeEnd {
			return text[:i]
		}
	}
	panic("native: the code has no end mark")
}

// initFile returns a descriptor for the program of process 1, in memory and
// still empty.
func initFile() (int, error) {
	fd, err := unix.MemfdCreate("bailey-init", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 every memfd is executable
		fd, err = unix.MemfdCreate("bailey-init", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, &LaunchError{Step: "make the program of process 1", Errno: ErrnoOf(err), Wall: WallInit}
	}
	return fd, nil
}

func writeInit(fd int, p initParams) error {
	if _, err := unix.Write(fd, image(p)); err != nil {
		return &LaunchError{Step: "write the program of process 1", Errno: ErrnoOf(err), Wall: WallInit}
	}
	return nil
}
