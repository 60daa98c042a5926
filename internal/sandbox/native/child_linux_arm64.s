#include "textflag.h"

// The same as for amd64, from R9 to R10, with failures recorded at R11.
#define PERFORM \
child: \
	CMP  R10, R9; \
	BHS  exit; \
	MOVD 64(R9), R12; \
	MOVD 8(R9), R0; \
	TBZ  $0, R12, arg1; \
	MOVD (R0), R0; \
arg1: \
	MOVD 16(R9), R1; \
	TBZ  $1, R12, arg2; \
	MOVD (R1), R1; \
arg2: \
	MOVD 24(R9), R2; \
	TBZ  $2, R12, arg3; \
	MOVD (R2), R2; \
arg3: \
	MOVD 32(R9), R3; \
	TBZ  $3, R12, arg4; \
	MOVD (R3), R3; \
arg4: \
	MOVD 40(R9), R4; \
	TBZ  $4, R12, arg5; \
	MOVD (R4), R4; \
arg5: \
	MOVD 48(R9), R5; \
	TBZ  $5, R12, call; \
	MOVD (R5), R5; \
call: \
	MOVD 0(R9), R8; \
	CMN  $1, R8; \
	BEQ  jump; \
	SVC; \
	CMN  $4095, R0; \
	BHS  failed; \
	MOVD 56(R9), R12; \
	CBZ  R12, next; \
	MOVD R0, (R12); \
next: \
	ADD  $80, R9; \
	B    child; \
jump: \
	MOVD R0, R9; \
	MOVD R1, R10; \
	B    child; \
failed: \
	NEG  R0, R0; \
	MOVD 72(R9), R12; \
	CMP  R12, R0; \
	BEQ  next; \
	MOVD R9, 0(R11); \
	MOVD R0, 8(R11)

// func cloneAndRun(flags, stack uintptr, pidfd *int32, first, end uintptr, f *failure) (pid int)
//
// The same as for amd64; see there.
TEXT ·cloneAndRun(SB), NOSPLIT, $0-56
	MOVD flags+0(FP), R0
	MOVD stack+8(FP), R1
	MOVD pidfd+16(FP), R2
	MOVD first+24(FP), R9
	MOVD end+32(FP), R10
	MOVD f+40(FP), R11
	MOVD $0, R3
	MOVD $0, R4
	MOVD $220, R8 // clone
	SVC
	CBZ  R0, child
	MOVD R0, pid+48(FP)
	RET

	PERFORM
exit:
	MOVD $1, R0
	MOVD $93, R8 // exit
	SVC
	BRK

// The same as for amd64; see there.
TEXT ·stageCode(SB), NOSPLIT|NOFRAME, $0
	MOVD $0x40, R11
	LSL  $16, R11
	MOVD 0(R11), R9
	MOVD 8(R11), R10
	ADD  $16, R11
	PERFORM
exit:
	MOVD $3, R0
	MOVD R11, R1
	MOVD $16, R2
	MOVD $64, R8 // write
	SVC
	MOVD $1, R0
	MOVD $94, R8 // exit_group
	SVC
	BRK
	WORD $0xe4e711ba
	WORD $0xe4e711ba

// func stageCodeAddr() unsafe.Pointer
TEXT ·stageCodeAddr(SB), NOSPLIT, $0-8
	MOVD $·stageCode(SB), R0
	MOVD R0, ret+0(FP)
	RET
