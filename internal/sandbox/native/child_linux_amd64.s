#include "textflag.h"

// Performs the system calls from R12 to R13 and goes on below when there are no
// more or one has failed, which it records at BX. A bit in op.ref says that the
// argument is the address of its value. A call numbered -1 is none: the plan goes
// on where its first two arguments say.
#define PERFORM \
child: \
	CMPQ R12, R13; \
	JAE  exit; \
	MOVQ 64(R12), CX; \
	MOVQ 8(R12), DI; \
	BTL  $0, CX; \
	JCC  arg1; \
	MOVQ (DI), DI; \
arg1: \
	MOVQ 16(R12), SI; \
	BTL  $1, CX; \
	JCC  arg2; \
	MOVQ (SI), SI; \
arg2: \
	MOVQ 24(R12), DX; \
	BTL  $2, CX; \
	JCC  arg3; \
	MOVQ (DX), DX; \
arg3: \
	MOVQ 32(R12), R10; \
	BTL  $3, CX; \
	JCC  arg4; \
	MOVQ (R10), R10; \
arg4: \
	MOVQ 40(R12), R8; \
	BTL  $4, CX; \
	JCC  arg5; \
	MOVQ (R8), R8; \
arg5: \
	MOVQ 48(R12), R9; \
	BTL  $5, CX; \
	JCC  call; \
	MOVQ (R9), R9; \
call: \
	MOVQ 0(R12), AX; \
	CMPQ AX, $-1; \
	JEQ  jump; \
	SYSCALL; \
	CMPQ AX, $-4095; \
	JCC  failed; \
	MOVQ 56(R12), CX; \
	TESTQ CX, CX; \
	JZ   next; \
	MOVQ AX, (CX); \
next: \
	ADDQ $80, R12; \
	JMP  child; \
jump: \
	MOVQ DI, R12; \
	MOVQ SI, R13; \
	JMP  child; \
failed: \
	NEGQ AX; \
	CMPQ AX, 72(R12); \
	JEQ  next; \
	MOVQ R12, 0(BX); \
	MOVQ AX, 8(BX)

// func cloneAndRun(flags, stack uintptr, pidfd *int32, first, end uintptr, f *failure) (pid int)
//
// Clones the calling process and, in the child, performs the system calls from
// first to end. A call numbered -1 is none: the plan goes on where its first two
// arguments say, which the launcher may fill in later. The child shares memory with this process and never returns:
// its last call is execveat, and on an error it records which call failed in f
// and exits. It runs no Go code and touches no stack, so it needs nothing of
// the Go runtime and can do no harm to it. Signals must be blocked.
TEXT ·cloneAndRun(SB), NOSPLIT, $0-56
	MOVQ flags+0(FP), DI
	MOVQ stack+8(FP), SI
	MOVQ pidfd+16(FP), DX
	MOVQ first+24(FP), R12
	MOVQ end+32(FP), R13
	MOVQ f+40(FP), BX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // clone
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, pid+48(FP)
	RET

child:
	JMP  ·performAndExit(SB)

// performAndExit is all that the child does.
TEXT ·performAndExit(SB), NOSPLIT|NOFRAME, $0
	PERFORM
exit:
	MOVL $1, DI
	MOVL $60, AX // exit
	SYSCALL
	INT  $3

// A program by itself that performs the plan in its own memory: see stageImage.
// Its bytes are copied, so there is nothing but this that it could call.
TEXT ·stageCode(SB), NOSPLIT|NOFRAME, $0
	MOVL $0x400000, BX
	MOVQ 0(BX), R12
	MOVQ 8(BX), R13
	ADDQ $16, BX
	PERFORM
exit:
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $16, DX
	MOVL $1, AX // write
	SYSCALL
	MOVL $1, DI
	MOVL $231, AX // exit_group
	SYSCALL
	INT  $3
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4

// func stageCodeAddr() unsafe.Pointer
TEXT ·stageCodeAddr(SB), NOSPLIT, $0-8
	LEAQ ·stageCode(SB), AX
	MOVQ AX, ret+0(FP)
	RET
