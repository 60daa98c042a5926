#include "textflag.h"

// The kernel calls this with the signal's number in R0, and the way back in
// R30. It restores every register afterwards, so that none needs to be kept.
TEXT ·handler(SB), NOSPLIT|NOFRAME, $0
	MOVW R0, R1
	MOVW ·target(SB), R0
	MOVD $0, R2
	MOVD $0, R3
	MOVD $424, R8 // pidfd_send_signal
	SVC
	RET

// Like handler, but tells a descriptor. Nothing else uses the stack meanwhile:
// every signal is blocked.
TEXT ·teller(SB), NOSPLIT|NOFRAME, $0
	MOVD RSP, R1
	SUB  $64, R1
	MOVB R0, (R1)
	MOVW ·target(SB), R0
	MOVD $1, R2
	MOVD $64, R8 // write
	SVC
	RET

// func tellerAddr() uintptr
TEXT ·tellerAddr(SB), NOSPLIT, $0-8
	MOVD $·teller(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func handlerAddr() uintptr
TEXT ·handlerAddr(SB), NOSPLIT, $0-8
	MOVD $·handler(SB), R0
	MOVD R0, ret+0(FP)
	RET
