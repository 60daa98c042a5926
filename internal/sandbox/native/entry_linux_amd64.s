#include "textflag.h"

// What entry allows the runtime: three descriptors, of the hard limit that is
// filled in.
DATA ·startLimit+0(SB)/8, $3
GLOBL ·startLimit(SB), NOPTR, $16

DATA ·oneProcessorVariable+0(SB)/8, $"GOMAXPRO"
DATA ·oneProcessorVariable+8(SB)/8, $"CS=1\x00\x00\x00\x00"
GLOBL ·oneProcessorVariable(SB), NOPTR|RODATA, $16

// entry is where the command's program starts, before the Go runtime does; see
// entry_linux.go.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	CALL ·early(SB)
	MOVL $30, DI // PR_GET_TIMERSLACK
	MOVL $157, AX
	SYSCALL
	MOVQ AX, ·slack(SB)
	MOVL $29, DI // PR_SET_TIMERSLACK
	MOVL $2000000, SI
	MOVL $157, AX
	SYSCALL
	XORL DI, DI
	MOVL $7, SI // RLIMIT_NOFILE
	XORL DX, DX
	LEAQ ·fileLimit(SB), R10
	MOVL $302, AX // prlimit64
	SYSCALL
	TESTQ AX, AX
	JNZ  start
	MOVQ ·fileLimit+8(SB), AX
	MOVQ AX, ·startLimit+8(SB)
	LEAQ ·startLimit(SB), DX
	XORL R10, R10
	MOVL $302, AX
	SYSCALL
start:
	// Above the stack pointer lie the number of arguments, the arguments, 0, the
	// environment, 0. Unless it has a GOMAXPROCS, all up to that 0 moves down by
	// one, and the variable takes the place that becomes free.
	MOVQ 0(SP), CX
	LEAQ 16(SP)(CX*8), SI
	MOVQ $0x4f525058414d4f47, DX // "GOMAXPRO"
search:
	MOVQ (SI), AX
	ADDQ $8, SI
	TESTQ AX, AX
	JZ   add
	CMPQ DX, (AX)
	JNE  search
	JMP  _rt0_amd64_linux(SB)
add:
	SUBQ $8, SI // at the 0
	MOVQ SI, BX
	MOVQ SI, CX
	SUBQ SP, CX
	SHRQ $3, CX
	MOVQ SP, SI
	LEAQ -8(SP), DI
	CLD
	REP; MOVSQ
	LEAQ ·oneProcessorVariable(SB), AX
	MOVQ AX, -8(BX)
	MOVQ $1, ·oneProcessor(SB)
	SUBQ $8, SP
	JMP _rt0_amd64_linux(SB)

// growStack needs much of the stack and uses none of it.
TEXT ·growStack(SB), 0, $16384-0
	RET
