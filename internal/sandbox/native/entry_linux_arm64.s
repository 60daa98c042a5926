#include "textflag.h"

// entry is where the command's program starts, before the Go runtime does; see
// slack in entry_linux.go.
TEXT ·entry(SB), NOSPLIT|NOFRAME, $0
	MOVD $30, R0 // PR_GET_TIMERSLACK
	MOVD $167, R8
	SVC
	MOVD R0, ·slack(SB)
	MOVD $29, R0 // PR_SET_TIMERSLACK
	MOVD $2000000, R1
	MOVD $167, R8
	SVC
	JMP _rt0_arm64_linux(SB)
