#include "textflag.h"

// The first process of a sandbox. Its bytes are copied into a program of their
// own (see image in init_linux.go) and run in a fresh address space with an
// empty environment of its own: no memory of the launcher is in reach. Fixed
// addresses: the parameters stand at 0x2000b0. Descriptor 3 is the pipe to the
// launcher. Every signal is blocked from before it starts.
//
//	R13 parameters   R9 argv   R15 envp   BX scratch memory   R12 the command's pid

#define SYS(n) MOVL $n, AX; SYSCALL

TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0
	MOVL $0x2000b0, R13
	MOVQ 0(SP), AX
	LEAQ 8(SP), R9
	LEAQ 16(SP)(AX*8), R15
	LEAQ -1024(SP), BX

	// Nothing inside may trace this process or read its memory.
	MOVL $4, DI // PR_SET_DUMPABLE
	XORL SI, SI
	SYS(157)
	MOVL $15, DI // PR_SET_NAME
	LEAQ 24(R13), SI
	SYS(157)

	// Die with the launcher's thread, and notice if it died before this: then
	// nobody holds the other end of the pipe.
	MOVL $1, DI // PR_SET_PDEATHSIG
	MOVL $9, SI
	SYS(157)
	MOVL $3, 0(BX)
	MOVL $0, 4(BX)
	MOVQ BX, DI
	MOVL $1, SI
	XORL DX, DX
	SYS(7) // poll
	TESTL $8, 6(BX) // POLLERR
	JNZ  die

	MOVL $3, DI
	MOVL $2, SI // F_SETFD
	MOVL $1, DX // FD_CLOEXEC
	SYS(72)

	// A session of its own: the caller's terminal is out of reach. With a
	// terminal of its own, this process stands to the command as a shell does,
	// so that stopping and continuing work.
	SYS(112) // setsid
	BTL  $0, 8(R13)
	JCC  fork
	MOVQ 48(R13), DI
	MOVL $0x540e, SI // TIOCSCTTY
	XORL DX, DX
	SYS(16)

fork:
	MOVL $2, 8(BX)  // the error to report: ENOENT until something else is met
	MOVL $0, 12(BX) // set if the command could not be started
	MOVL $0x4111, DI // CLONE_VM | CLONE_VFORK | SIGCHLD
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYS(56) // clone
	TESTQ AX, AX
	JNZ  parent

	XORL DI, DI
	XORL SI, SI
	SYS(109) // setpgid
	BTL  $0, 8(R13)
	JCC  unmask
	SYS(39) // getpid
	MOVL AX, 0(BX)
	MOVQ 48(R13), DI
	MOVL $0x5410, SI // TIOCSPGRP
	MOVQ BX, DX
	SYS(16)
unmask:
	MOVL $2, DI // SIG_SETMASK
	LEAQ 16(R13), SI
	XORL DX, DX
	MOVL $8, R10
	SYS(14)

	MOVQ 0(R13), R14
try:
	MOVQ (R14), DI
	TESTQ DI, DI
	JZ   notfound
	MOVQ R9, SI
	MOVQ R15, DX
	SYS(59) // execve
	NEGL AX
	ADDQ $8, R14
	CMPL AX, $2 // ENOENT
	JEQ  try
	CMPL AX, $20 // ENOTDIR
	JEQ  try
	MOVL AX, 8(BX)
	CMPL AX, $13 // EACCES: remembered, but a later candidate may do
	JEQ  try
notfound:
	MOVL $1, 12(BX)
	MOVL $127, DI
	SYS(60)

parent:
	MOVQ AX, R12
	TESTQ AX, AX
	JLE  forkfailed
	CMPL 12(BX), $0
	JNE  execfailed
	MOVL $0x20000, 0(BX)
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $4, DX
	SYS(1)

	// The command's streams are its own: whoever reads them sees their end when
	// the command closes them.
	XORL DI, DI
	SYS(3)
	MOVL $1, DI
	SYS(3)
	MOVL $2, DI
	SYS(3)

wait:
	LEAQ 40(R13), DI
	LEAQ 64(BX), SI
	XORL DX, DX
	MOVL $8, R10
	SYS(128) // rt_sigtimedwait
	CMPQ AX, $17 // SIGCHLD
	JEQ  reap
	TESTQ AX, AX
	JLE  wait
	// Only signals from outside the namespace are passed on; their sender has
	// no number here.
	CMPL 80(BX), $0
	JNE  wait
	MOVQ AX, SI
	MOVQ R12, DI
	CMPQ SI, $31
	JHI  send
	// HUP INT QUIT CONT TSTP WINCH concern the whole job, as from a terminal.
	MOVL $0x1014000e, CX
	BTL  SI, CX
	JCC  send
	NEGQ DI
send:
	SYS(62) // kill
	JMP  wait

reap:
	MOVQ $-1, DI
	MOVQ BX, SI
	MOVL $11, DX // WNOHANG | WUNTRACED | WCONTINUED
	XORL R10, R10
	SYS(61) // wait4
	TESTQ AX, AX
	JLE  wait
	CMPQ AX, R12
	JNE  reap
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $4, DX
	SYS(1)
	MOVL 0(BX), AX
	CMPL AX, $0xffff // continued
	JEQ  reap
	ANDL $0xff, AX
	CMPL AX, $0x7f // stopped
	JEQ  reap
	JMP  die

forkfailed:
	NEGL AX
	MOVL AX, 8(BX)
execfailed:
	MOVL 8(BX), AX
	ORL  $0x10000, AX
	MOVL AX, 0(BX)
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $4, DX
	SYS(1)
die:
	XORL DI, DI
	SYS(231) // exit_group
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4

// func initCodeAddr() unsafe.Pointer
TEXT ·initCodeAddr(SB), NOSPLIT, $0-8
	LEAQ ·initCode(SB), AX
	MOVQ AX, ret+0(FP)
	RET
