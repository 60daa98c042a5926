#include "go_asm.h"
#include "textflag.h"

#define SYS(n) MOVL $n, AX; SYSCALL
#define ARG(call, n) ·earlyPlan+(call*op__size+op_arg+8*n)(SB)

DATA ·initName+0(SB)/8, $"bailey-i"
DATA ·initName+8(SB)/8, $"nit\x00\x00\x00\x00\x00"
GLOBL ·initName(SB), NOPTR|RODATA, $16

// early begins a launch, before there is a Go runtime; see early_linux.go. It is
// called with the process's own stack, on which the number of arguments and the
// arguments lie above the return address. Whatever fails is left for Go to try
// again, and to tell about.
TEXT ·early(SB), NOSPLIT|NOFRAME, $0
	// A command is run after "--", after "-c", or if the first argument is none of
	// ours; those who begin with "--keep" run in a sandbox that stands, as does
	// what "box" does, and with "--runtime" another may be asked for.
	LEAQ 24(SP), R8 // the first argument
	MOVQ (R8), AX
	TESTQ AX, AX
	JZ   none
	CMPB (AX), $0x2d // -
	JEQ  flags
	CMPL (AX), $0x00786f62 // box
	JEQ  none
	JMP  begin
flags:
	MOVQ (R8), AX
	ADDQ $8, R8
	TESTQ AX, AX
	JZ   none
	MOVL (AX), DX
	CMPL DX, $0x656b2d2d // --ke
	JEQ  none
	CMPL DX, $0x75722d2d // --ru
	JEQ  none
	ANDL $0xffffff, DX
	CMPL DX, $0x002d2d // --
	JEQ  begin
	CMPL DX, $0x00632d // -c
	JNE  flags

begin:
	LEAQ ·born+infant_status(SB), DI
	MOVL $0x80000, SI // O_CLOEXEC
	SYS(293) // pipe2
	TESTQ AX, AX
	JNZ  none
	CMPL ·born+infant_status(SB), $2
	JLE  streams
	CMPL ·born+(infant_status+4)(SB), $2
	JLE  streams
	LEAQ ·born+infant_proceed(SB), DI
	MOVL $0x80000, SI
	SYS(293)
	TESTQ AX, AX
	JNZ  undo1
	MOVL $1, DI // AF_UNIX
	MOVL $0x80005, SI // SOCK_SEQPACKET | SOCK_CLOEXEC
	XORL DX, DX
	LEAQ ·born+infant_socket(SB), R10
	SYS(53) // socketpair
	TESTQ AX, AX
	JNZ  undo2
	LEAQ ·initName(SB), DI
	MOVL $0x11, SI // MFD_CLOEXEC | MFD_EXEC
	SYS(319) // memfd_create
	TESTQ AX, AX
	JLT  undo3
	MOVQ AX, ·born+infant_init(SB)

	// What was not known when the table was written.
	LEAQ ·born+infant_at(SB), AX
	MOVQ AX, ARG(const_earlyClone, 1)
	ADDQ $16, AX
	MOVQ AX, ARG(const_earlyNamespaces, 1)
	MOVL ·born+infant_status(SB), AX
	MOVQ AX, ARG(const_earlyClose, 0)
	MOVL ·born+(infant_proceed+4)(SB), AX
	MOVQ AX, ·earlyPlan+((const_earlyClose+1)*op__size+op_arg)(SB)
	MOVL ·born+infant_socket(SB), AX
	MOVQ AX, ·earlyPlan+((const_earlyClose+2)*op__size+op_arg)(SB)
	LEAQ ·born+infant_fd(SB), AX
	MOVQ AX, ·earlyPlan+(const_earlySocket*op__size+op_out)(SB)
	MOVQ AX, ARG(const_earlyUp, 0)
	MOVQ AX, ARG(const_earlyDown, 0)
	LEAQ ·born+infant_lo(SB), AX
	MOVQ AX, ARG(const_earlyUp, 2)
	MOVL ·born+infant_proceed(SB), AX
	MOVQ AX, ARG(const_earlyWait, 0)
	LEAQ ·born+infant_answer(SB), AX
	MOVQ AX, ARG(const_earlyWait, 1)
	LEAQ ·born+infant_next(SB), AX
	MOVQ AX, ARG(const_earlyGoOn, 0)
	ADDQ $8, AX
	MOVQ AX, ARG(const_earlyGoOn, 1)

	MOVL $2, DI // SIG_SETMASK
	LEAQ ·born+infant_mask(SB), SI
	LEAQ ·born+(infant_mask+8)(SB), DX
	MOVL $8, R10
	SYS(14) // rt_sigprocmask
	MOVL $0x30001111, DI // CLONE_VM | CLONE_PIDFD | SIGCHLD | CLONE_NEWUSER | CLONE_NEWPID
	LEAQ ·born+(infant_stack+256)(SB), SI
	LEAQ ·born+infant_pidfd(SB), DX
	XORL R10, R10
	XORL R8, R8
	SYS(56) // clone
	TESTQ AX, AX
	JZ   child
	MOVQ AX, R12
	MOVL $2, DI
	LEAQ ·born+(infant_mask+8)(SB), SI
	XORL DX, DX
	MOVL $8, R10
	SYS(14)
	TESTQ R12, R12
	JLT  undo4
	MOVQ R12, ·born+infant_pid(SB)
	RET

child:
	LEAQ ·earlyPlan(SB), R12
	LEAQ ·earlyPlan+((const_earlyGoOn+1)*op__size)(SB), R13
	LEAQ ·born+infant_fail(SB), BX
	JMP  ·performAndExit(SB)

undo4:
	MOVL ·born+infant_init(SB), DI
	SYS(3) // close
undo3:
	MOVL ·born+infant_socket(SB), DI
	SYS(3)
	MOVL ·born+(infant_socket+4)(SB), DI
	SYS(3)
undo2:
	MOVL ·born+infant_proceed(SB), DI
	SYS(3)
	MOVL ·born+(infant_proceed+4)(SB), DI
	SYS(3)
undo1:
	// A pipe in the place of a stream is none of the caller's.
streams:
	MOVL ·born+infant_status(SB), DI
	SYS(3)
	MOVL ·born+(infant_status+4)(SB), DI
	SYS(3)
none:
	RET
