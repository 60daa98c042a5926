#include "textflag.h"

// The same as for amd64; see there.
//
//	R19 parameters   R20 argv   R21 envp   R22 scratch memory   R23 the command's pid
//	of a resident: R25 slots in use; R26 where the pids in them stand

#define SYS(n) MOVD $n, R8; SVC

#define SEND MOVD $16, R2; SENDAS
#define SENDUSED MOVD $160, R2; SENDAS
#define SENDAS MOVD $3, R0; ADD $16, R22, R1; SYS(64)

TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0
	MOVD $0x20, R19
	LSL  $16, R19
	ADD  $0xb0, R19
	MOVD RSP, R22
	MOVD (R22), R0
	ADD  $8, R22, R20
	ADD  $16, R22, R21
	LSL  $3, R0
	ADD  R0, R21
	SUB  $1024, R22

	// Nothing inside may trace this process or read its memory.
	MOVD $4, R0 // PR_SET_DUMPABLE
	MOVD $0, R1
	SYS(167)
	MOVD $15, R0 // PR_SET_NAME
	ADD  $24, R19, R1
	SYS(167)

	// Die with the launcher's thread; see amd64.
	MOVD 8(R19), R0
	TBNZ $3, R0, bound
	MOVD $1, R0 // PR_SET_PDEATHSIG
	MOVD $9, R1
	SYS(167)
bound:
	MOVD $3, R0
	MOVW R0, (R22)
	MOVW ZR, 4(R22)
	MOVD ZR, 16(R22)
	MOVD ZR, 24(R22)
	MOVD R22, R0
	MOVD $1, R1
	ADD  $16, R22, R2
	MOVD $0, R3
	MOVD $0, R4
	SYS(73) // ppoll
	MOVHU 6(R22), R0
	TBNZ $3, R0, die // POLLERR

	MOVD $3, R0
	MOVD $2, R1 // F_SETFD
	MOVD $1, R2 // FD_CLOEXEC
	SYS(25)

	SYS(157) // setsid
	MOVD 8(R19), R0
	TBNZ $2, R0, resident

session:
	MOVD 8(R19), R0
	TBZ  $0, R0, fork
	MOVD 48(R19), R0
	MOVD $0x540e, R1 // TIOCSCTTY
	MOVD $0, R2
	SYS(29)

fork:
	MOVD $2, R0
	MOVW R0, 8(R22)
	MOVW ZR, 12(R22)
	MOVD $0x4111, R0 // CLONE_VM | CLONE_VFORK | SIGCHLD
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SYS(220) // clone
	CBNZ R0, parent

	MOVD 8(R19), R0
	TBZ  $1, R0, command
	MOVD $1, R0 // PR_SET_PDEATHSIG
	MOVD $9, R1
	SYS(167)
command:
	MOVD $0, R0
	MOVD $0, R1
	SYS(154) // setpgid
	MOVD 8(R19), R0
	TBZ  $0, R0, unmask
	SYS(172) // getpid
	MOVW R0, (R22)
	MOVD 48(R19), R0
	MOVD $0x5410, R1 // TIOCSPGRP
	MOVD R22, R2
	SYS(29)
unmask:
	MOVD $2, R0 // SIG_SETMASK
	ADD  $16, R19, R1
	MOVD $0, R2
	MOVD $8, R3
	SYS(135)

	MOVD (R19), R24
try:
	MOVD (R24), R0
	CBZ  R0, notfound
	MOVD R20, R1
	MOVD R21, R2
	SYS(221) // execve
	NEG  R0, R0
	ADD  $8, R24
	CMP  $2, R0 // ENOENT
	BEQ  try
	CMP  $20, R0 // ENOTDIR
	BEQ  try
	MOVW R0, 8(R22)
	CMP  $13, R0 // EACCES
	BEQ  try
notfound:
	MOVD $1, R0
	MOVW R0, 12(R22)
	MOVD $127, R0
	SYS(93)

parent:
	MOVD R0, R23
	CMP  $0, R0
	BLE  forkfailed
	MOVWU 12(R22), R0
	CBNZ R0, execfailed
	MOVD 56(R19), R0
	MOVW R0, 16(R22)
	MOVD $0x20000, R0
	MOVW R0, 20(R22)
	MOVW R23, 24(R22)
	SEND

	MOVD $0, R0
	SYS(57)
	MOVD $1, R0
	SYS(57)
	MOVD $2, R0
	SYS(57)

wait:
	ADD  $40, R19, R0
	ADD  $64, R22, R1
	MOVD $0, R2
	MOVD $8, R3
	SYS(137) // rt_sigtimedwait
	CMP  $17, R0 // SIGCHLD
	BEQ  reap
	CMP  $0, R0
	BLE  wait
	MOVWU 80(R22), R1
	CMP  $1, R1
	BHI  wait
	MOVD R0, R1
	MOVD R23, R0
	CMP  $31, R1
	BHI  send
	MOVD $0x1014, R2
	LSL  $16, R2
	ADD  $0x0e, R2
	LSR  R1, R2
	TBZ  $0, R2, send
	NEG  R0, R0
send:
	SYS(129) // kill
	B    wait

reap:
	MOVD $-1, R0
	MOVD R22, R1
	MOVD $11, R2 // WNOHANG | WUNTRACED | WCONTINUED
	ADD  $32, R22, R3
	SYS(260) // wait4
	CMP  $0, R0
	BLE  wait
	CMP  R23, R0
	BNE  reap
	MOVD 56(R19), R0
	MOVW R0, 16(R22)
	MOVWU (R22), R0
	MOVW R0, 20(R22)
	MOVD 8(R19), R0
	TBNZ $1, R0, report
	SEND
	B    reported
report:
	SENDUSED
reported:
	MOVWU (R22), R0
	MOVD $0xffff, R1
	CMP  R1, R0 // continued
	BEQ  reap
	AND  $0xff, R0
	CMP  $0x7f, R0 // stopped
	BEQ  reap
	B    die

forkfailed:
	NEG  R0, R0
	MOVW R0, 8(R22)
execfailed:
	MOVWU 8(R22), R0
	ORR  $0x10000, R0
	MOVW R0, 20(R22)
	MOVD 56(R19), R0
	MOVW R0, 16(R22)
	SEND
die:
	MOVD $0, R0
	SYS(94) // exit_group

resident:
	MOVD $0, R0 // SIG_BLOCK
	ADD  $40, R19, R1
	MOVD $0, R2
	MOVD $8, R3
	SYS(135) // rt_sigprocmask
	SUB  $4096, R22, R26
	MOVD $0, R25
	MOVD $0x10000, R0 // SIGCHLD
	MOVD R0, 64(R22)
	MOVD $-1, R0
	ADD  $64, R22, R1
	MOVD $8, R2
	MOVD $0x80000, R3 // SFD_CLOEXEC
	SYS(74) // signalfd4
	TBNZ $31, R0, die
	MOVW R0, 200(R22)
	MOVD $1, R0 // POLLIN
	MOVW R0, 196(R22)
	MOVW R0, 204(R22)
	MOVD $3, R0
	MOVW R0, 192(R22)
	MOVD $-1, R0
	MOVW R0, 16(R22)
	MOVD $0x20000, R0
	MOVW R0, 20(R22)
	SEND

next:
	ADD  $192, R22, R0
	MOVD $2, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SYS(73) // ppoll
	MOVHU 206(R22), R0
	CBZ  R0, request
	MOVWU 200(R22), R0
	ADD  $64, R22, R1
	MOVD $128, R2
	SYS(63) // read

child:
	MOVD $-1, R0
	MOVD R22, R1
	MOVD $11, R2 // WNOHANG | WUNTRACED | WCONTINUED
	ADD  $32, R22, R3
	SYS(260) // wait4
	CMP  $0, R0
	BLE  request
	MOVD $0, R1
find:
	CMP  R25, R1
	BHS  child // an orphan
	LSL  $2, R1, R2
	ADD  R26, R2
	MOVWU (R2), R3
	AND  $0x7fffffff, R3, R4
	CMP  R4, R0
	BEQ  found
	ADD  $1, R1
	B    find
found:
	MOVWU (R22), R4
	MOVD $0xffff, R5
	CMP  R5, R4 // continued
	BEQ  alive
	AND  $0xff, R4, R5
	CMP  $0x7f, R5 // stopped
	BEQ  alive
	MOVW ZR, (R2)
	TBZ  $31, R3, tell
	CBZ  R4, child // a session that was killed could tell nothing
tell:
	MOVW R1, 16(R22)
	MOVW R4, 20(R22)
	MOVW R0, 24(R22)
	SENDUSED
	B    child
alive:
	TBZ  $31, R3, tell
	B    child

request:
	MOVHU 198(R22), R0
	CBZ  R0, next
	ADD  $320, R22, R0
	MOVD R0, 208(R22) // struct iovec
	MOVD $16, R0
	MOVD R0, 216(R22)
	MOVD ZR, 224(R22) // struct msghdr
	MOVD ZR, 232(R22)
	ADD  $208, R22, R0
	MOVD R0, 240(R22)
	MOVD $1, R0
	MOVD R0, 248(R22)
	ADD  $288, R22, R0
	MOVD R0, 256(R22)
	MOVD $32, R0
	MOVD R0, 264(R22)
	MOVD ZR, 272(R22)
	MOVD ZR, 288(R22)
	MOVD $3, R0
	ADD  $224, R22, R1
	MOVD $0x40000100, R2 // MSG_CMSG_CLOEXEC | MSG_WAITALL
	SYS(212) // recvmsg
	CMP  $16, R0
	BNE  die // the owner is gone
	MOVWU 324(R22), R1
	CMP  $1024, R1
	BHS  die
	LSL  $2, R1, R2
	ADD  R26, R2
	MOVWU 320(R22), R0
	CMP  $1, R0
	BEQ  run
	CMP  $2, R0
	BNE  die

	MOVWU (R2), R0
	MOVWU 328(R22), R3
	AND  $0xff, R3, R1
	CBZ  R0, next // it has ended
	TBNZ $31, R0, one // the session knows whom it concerns
	TBZ  $8, R3, one
	NEG  R0, R0
	SYS(129) // kill
	B    next
one:
	AND  $0x7fffffff, R0
	SYS(129)
	B    next

run:
	MOVD 288(R22), R0
	CMP  $28, R0 // three descriptors
	BNE  die
	MOVD $0x40000000, R0
	MOVWU 332(R22), R1
	MOVD $3, R2
	MOVD $0x100022, R3 // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
	MOVD $-1, R4
	MOVD $0, R5
	SYS(222) // mmap
	MOVD $0x40000000, R19
	CMP  R19, R0
	BNE  die
	MOVD $3, R0
	MOVD R19, R1
	MOVWU 332(R22), R2
	MOVD $0x100, R3 // MSG_WAITALL
	MOVD $0, R4
	MOVD $0, R5
	SYS(207) // recvfrom
	MOVWU 332(R22), R2
	CMP  R2, R0
	BNE  die
	MOVD 64(R19), R20
	MOVD 72(R19), R21
	MOVD $2, R0
	MOVW R0, 8(R22)
	MOVW ZR, 12(R22)
	MOVD 8(R19), R24
	MOVD $0x4111, R0 // CLONE_VM | CLONE_VFORK | SIGCHLD
	TBZ  $0, R24, start
	MOVD $0x11, R0 // a session outlives this request
start:
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SYS(220) // clone
	CBZ  R0, begin

	MOVD R0, R23
	MOVWU 304(R22), R0
	SYS(57) // close
	MOVWU 308(R22), R0
	SYS(57)
	MOVWU 312(R22), R0
	SYS(57)
	MOVD $0x40000000, R0
	MOVWU 332(R22), R1
	SYS(215) // munmap
	MOVWU 324(R22), R1
	MOVW R1, 16(R22)
	MOVW R23, 24(R22)
	TBNZ $63, R23, unstarted
	MOVWU 12(R22), R0
	CBNZ R0, unexecuted
	CMP  R25, R1
	BLO  known
	ADD  $1, R1, R25
known:
	LSL  $2, R1
	ADD  R26, R1
	MOVW R23, (R1)
	TBZ  $0, R24, started
	ORR  $0x80000000, R23
	MOVW R23, (R1)
	B    next
started:
	MOVD $0x20000, R0
	MOVW R0, 20(R22)
	SEND
	B    next
unexecuted:
	MOVD R23, R0
	MOVD R22, R1
	MOVD $0, R2
	MOVD $0, R3
	SYS(260) // wait4
	MOVWU 8(R22), R0
	B    refuse
unstarted:
	NEG  R23, R0
refuse:
	ORR  $0x10000, R0
	MOVW R0, 20(R22)
	SEND
	B    next

begin:
	MOVWU 304(R22), R0
	MOVD $0, R1
	MOVD $0, R2
	SYS(24) // dup3
	MOVWU 308(R22), R0
	MOVD $1, R1
	SYS(24)
	MOVWU 312(R22), R0
	MOVD $2, R1
	SYS(24)
	MOVD 88(R19), R0
	TBNZ $63, R0, enter
	SYS(166) // umask
enter:
	MOVD 80(R19), R0
	CBZ  R0, entered
	SYS(49) // chdir
	TBNZ $63, R0, nowhere
entered:
	TBZ  $0, R24, command
	MOVD $4, R0
	MOVD $0xffffffff, R1
	MOVD $0, R2
	SYS(436) // close_range
	SYS(157) // setsid
	B    session
nowhere:
	NEG  R0, R0
	ORR  $0x40000, R0
	MOVW R0, 8(R22)
	TBNZ $0, R24, execfailed
	B    notfound
	WORD $0xe4e711ba
	WORD $0xe4e711ba

// func initCodeAddr() unsafe.Pointer
TEXT ·initCodeAddr(SB), NOSPLIT, $0-8
	MOVD $·initCode(SB), R0
	MOVD R0, ret+0(FP)
	RET
