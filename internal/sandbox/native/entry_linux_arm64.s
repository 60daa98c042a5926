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
	MOVD $30, R0 // PR_GET_TIMERSLACK
	MOVD $167, R8
	SVC
	MOVD R0, ·slack(SB)
	MOVD $29, R0 // PR_SET_TIMERSLACK
	MOVD $2000000, R1
	MOVD $167, R8
	SVC
	MOVD ZR, R0
	MOVD $7, R1 // RLIMIT_NOFILE
	MOVD ZR, R2
	MOVD $·fileLimit(SB), R3
	MOVD $261, R8 // prlimit64
	SVC
	CBNZ R0, start
	MOVD ·fileLimit+8(SB), R4
	MOVD R4, ·startLimit+8(SB)
	MOVD $·startLimit(SB), R2
	MOVD ZR, R3
	MOVD $261, R8
	SVC
start:
	// Above the stack pointer lie the number of arguments, the arguments, 0, the
	// environment, 0. Unless it has a GOMAXPROCS, all up to that 0 moves down by
	// two, since the pointer keeps to multiples of 16, and the variable takes the
	// places that become free, twice.
	MOVD RSP, R4
	MOVD 0(R4), R5
	ADD  $16, R4, R6
	ADD  R5<<3, R6
	MOVD $0x4f525058414d4f47, R7 // "GOMAXPRO"
search:
	MOVD.P 8(R6), R9
	CBZ  R9, add
	MOVD 0(R9), R10
	CMP  R7, R10
	BNE  search
	JMP  _rt0_arm64_linux(SB)
add:
	SUB  $8, R6 // at the 0
	SUB  $16, R4, R11
	MOVD R11, RSP
move:
	MOVD.P 8(R4), R9
	MOVD.P R9, 8(R11)
	CMP  R6, R4
	BNE  move
	MOVD $·oneProcessorVariable(SB), R9
	MOVD R9, 0(R11)
	MOVD R9, 8(R11)
	MOVD $1, R9
	MOVD R9, ·oneProcessor(SB)
	JMP _rt0_arm64_linux(SB)

// growStack needs much of the stack and uses none of it.
TEXT ·growStack(SB), 0, $16384-0
	RET
