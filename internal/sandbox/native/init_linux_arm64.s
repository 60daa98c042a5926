#include "textflag.h"

// The same as for amd64; see there.
//
//	R19 parameters   R20 argv   R21 envp   R22 scratch memory   R23 the command's pid

#define SYS(n) MOVD $n, R8; SVC

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
	MOVD $1, R0 // PR_SET_PDEATHSIG
	MOVD $9, R1
	SYS(167)
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
	MOVD $2, R0
	LSL  $16, R0
	MOVW R0, (R22)
	MOVD $3, R0
	MOVD R22, R1
	MOVD $4, R2
	SYS(64)

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
	CBNZ R1, wait
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
	MOVD $0, R3
	SYS(260) // wait4
	CMP  $0, R0
	BLE  wait
	CMP  R23, R0
	BNE  reap
	MOVD $3, R0
	MOVD R22, R1
	MOVD $4, R2
	SYS(64)
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
	MOVD $1, R1
	LSL  $16, R1
	ORR  R1, R0
	MOVW R0, (R22)
	MOVD $3, R0
	MOVD R22, R1
	MOVD $4, R2
	SYS(64)
die:
	MOVD $0, R0
	SYS(94) // exit_group
	WORD $0xe4e711ba
	WORD $0xe4e711ba

// func initCodeAddr() unsafe.Pointer
TEXT ·initCodeAddr(SB), NOSPLIT, $0-8
	MOVD $·initCode(SB), R0
	MOVD R0, ret+0(FP)
	RET
