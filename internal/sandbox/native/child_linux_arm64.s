#include "textflag.h"

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

child:
	CMP  R10, R9
	BHS  exit

	// A bit in op.ref says that the argument is the address of its value.
	MOVD 64(R9), R12
	MOVD 8(R9), R0
	TBZ  $0, R12, arg1
	MOVD (R0), R0
arg1:
	MOVD 16(R9), R1
	TBZ  $1, R12, arg2
	MOVD (R1), R1
arg2:
	MOVD 24(R9), R2
	TBZ  $2, R12, arg3
	MOVD (R2), R2
arg3:
	MOVD 32(R9), R3
	TBZ  $3, R12, arg4
	MOVD (R3), R3
arg4:
	MOVD 40(R9), R4
	TBZ  $4, R12, arg5
	MOVD (R4), R4
arg5:
	MOVD 48(R9), R5
	TBZ  $5, R12, call
	MOVD (R5), R5
call:
	MOVD 0(R9), R8
	CMN  $1, R8
	BEQ  jump
	SVC
	CMN  $4095, R0
	BHS  failed
	MOVD 56(R9), R12
	CBZ  R12, next
	MOVD R0, (R12)
next:
	ADD  $80, R9
	B    child

jump:
	MOVD R0, R9
	MOVD R1, R10
	B    child

failed:
	NEG  R0, R0
	MOVD 72(R9), R12
	CMP  R12, R0
	BEQ  next
	MOVD R9, 0(R11)
	MOVD R0, 8(R11)
exit:
	MOVD $1, R0
	MOVD $93, R8 // exit
	SVC
	BRK
