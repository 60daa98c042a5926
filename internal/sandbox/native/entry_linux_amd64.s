#include "textflag.h"

// entry is where the command's program starts, before the Go runtime does; see
// slack in entry_linux.go.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	MOVL $30, DI // PR_GET_TIMERSLACK
	MOVL $157, AX
	SYSCALL
	MOVQ AX, ·slack(SB)
	MOVL $29, DI // PR_SET_TIMERSLACK
	MOVL $2000000, SI
	MOVL $157, AX
	SYSCALL
	JMP _rt0_amd64_linux(SB)
