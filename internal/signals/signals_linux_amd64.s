#include "textflag.h"

// The kernel calls this with the signal's number in DI. It restores every
// register afterwards, so that none needs to be kept.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	MOVL DI, SI
	MOVL ·target(SB), DI
	XORL DX, DX
	XORL R10, R10
	MOVL $424, AX // pidfd_send_signal
	SYSCALL
	RET

// Like handler, but tells a descriptor. Nothing else uses the stack meanwhile:
// every signal is blocked.
TEXT ·teller(SB), NOSPLIT|NOFRAME, $0
	LEAQ -64(SP), SI
	MOVB DI, (SI)
	MOVL ·target(SB), DI
	MOVL $1, DX
	MOVL $1, AX // write
	SYSCALL
	RET

// func tellerAddr() uintptr
TEXT ·tellerAddr(SB), NOSPLIT, $0-8
	LEAQ ·teller(SB), AX
	MOVQ AX, ret+0(FP)
	RET

TEXT ·restorer(SB), NOSPLIT|NOFRAME, $0
	MOVL $15, AX // rt_sigreturn
	SYSCALL
	INT  $3 // does not return

// func handlerAddr() uintptr
TEXT ·handlerAddr(SB), NOSPLIT, $0-8
	LEAQ ·handler(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func restorerAddr() uintptr
TEXT ·restorerAddr(SB), NOSPLIT, $0-8
	LEAQ ·restorer(SB), AX
	MOVQ AX, ret+0(FP)
	RET
