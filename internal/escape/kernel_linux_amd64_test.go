package escape

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	attacks["int80"] = func([]string) {
		runtime.LockOSThread()
		// 32-bit calls need everything below 4 GB.
		low, err := unix.MmapPtr(-1, 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_32BIT)
		report("mmap", err)
		if err != nil {
			return
		}
		page := unsafe.Slice((*byte)(low), 4096)
		base := uint32(uintptr(low))
		const mkdir = 39 // in the 32-bit table
		const pathAt, resultAt = 1024, 2048
		copy(page[pathAt:], "int80-made\x00")
		copy(page, machineCode(mkdir, base+pathAt, 0o755, uint64(base)+resultAt))
		// A Go function value is a pointer to a pointer to code.
		entry := uintptr(low)
		fn := &entry
		(*(*func())(unsafe.Pointer(&fn)))()
		result := int64(binary.LittleEndian.Uint64(page[resultAt:]))
		var errno unix.Errno
		if result < 0 {
			errno = unix.Errno(-result)
		}
		report("int 0x80 mkdir", asError(errno))
	}
}

// machineCode makes one call through the gate of 32-bit programs and stores the
// result.
func machineCode(nr, a, b uint32, result uint64) []byte {
	le := binary.LittleEndian
	code := le.AppendUint32([]byte{0xb8}, nr)                // mov eax, nr
	code = le.AppendUint32(append(code, 0xbb), a)            // mov ebx, a
	code = le.AppendUint32(append(code, 0xb9), b)            // mov ecx, b
	code = append(code, 0xcd, 0x80)                          // int 0x80
	code = append(code, 0x48, 0x98)                          // cdqe
	code = le.AppendUint64(append(code, 0x48, 0xa3), result) // mov [result], rax
	return append(code, 0xc3)                                // ret
}

func TestCallsOf32BitProgramsAreRefused(t *testing.T) {
	b := newBox(t)
	b.attack("int80")
	if _, err := os.Lstat(b.project + "/int80-made"); err == nil {
		t.Errorf("a 32-bit system call was made")
	}
	b.free("int80")
	if _, err := os.Lstat(b.project + "/int80-made"); err != nil {
		t.Errorf("control: without a sandbox: %v", err)
	}
}
