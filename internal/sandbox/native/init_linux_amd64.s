#include "textflag.h"

// The first process of a sandbox. Its bytes are copied into a program of their
// own (see image in init_linux.go) and run in a fresh address space with an
// empty environment of its own: no memory of the launcher is in reach. Fixed
// addresses: the parameters stand at 0x2000b0. Descriptor 3 is the pipe to the
// launcher. Every signal is blocked from before it starts.
//
// It has two parts. A session starts one command, passes signals on to it, tells
// how it ends, and ends. The first process of a sandbox for one command is a
// session. That of a resident sandbox goes by what its owner asks for: it starts
// commands as children of its own, and those with a terminal in a session that
// it forks.
//
//	R13 parameters   R9 argv   R15 envp   BX scratch memory   R12 the command's pid
//	of a resident: R14 slots in use; the pid in slot n stands at -4096(BX)(n*4)

#define SYS(n) MOVL $n, AX; SYSCALL

// Sends the message that stands at 16(BX): slot, what happened, pid. Behind it
// wait4 puts what was used, which the owner of a resident is told as well.
#define SEND MOVL $16, DX; SENDAS
#define SENDUSED MOVL $160, DX; SENDAS
#define SENDAS MOVL $3, DI; LEAQ 16(BX), SI; SYS(1)

#define BLOB 0x40000000 // where requests are put
#define SLOTS 1024
#define SESSION 0x80000000 // in a slot: that process tells by itself

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
	// nobody holds the other end of the pipe. What a container runtime has started
	// outlives that, and dies with its guard.
	BTL  $3, 8(R13)
	JCS  bound
	MOVL $1, DI // PR_SET_PDEATHSIG
	MOVL $9, SI
	SYS(157)
bound:
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

	// A session of its own: the caller's terminal is out of reach.
	SYS(112) // setsid
	BTL  $2, 8(R13)
	JCS  resident

	// With a terminal of its own, this process stands to the command as a shell
	// does, so that stopping and continuing work.
session:
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

	BTL  $1, 8(R13)
	JCC  command
	MOVL $1, DI // PR_SET_PDEATHSIG: a session that is killed takes its command along
	MOVL $9, SI
	SYS(157)
command:
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
	MOVQ 56(R13), AX
	MOVL AX, 16(BX)
	MOVL $0x20000, 20(BX)
	MOVL R12, 24(BX)
	SEND

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
	// Only signals from outside the namespace, whose sender has no number here,
	// and from the first process are passed on.
	CMPL 80(BX), $1
	JHI  wait
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
	LEAQ 32(BX), R10
	SYS(61) // wait4
	TESTQ AX, AX
	JLE  wait
	CMPQ AX, R12
	JNE  reap
	MOVQ 56(R13), AX
	MOVL AX, 16(BX)
	MOVL 0(BX), AX
	MOVL AX, 20(BX)
	BTL  $1, 8(R13)
	JCS  report
	SEND
	JMP  reported
report:
	SENDUSED
reported:
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
	MOVL AX, 20(BX)
	MOVQ 56(R13), AX
	MOVL AX, 16(BX)
	SEND
die:
	XORL DI, DI
	SYS(231) // exit_group

resident:
	XORL DI, DI // SIG_BLOCK: a container runtime has blocked nothing
	LEAQ 40(R13), SI
	XORL DX, DX
	MOVL $8, R10
	SYS(14) // rt_sigprocmask
	// Waiting for children and for requests at once.
	MOVQ $0x10000, AX // SIGCHLD
	MOVQ AX, 64(BX)
	MOVQ $-1, DI
	LEAQ 64(BX), SI
	MOVL $8, DX
	MOVL $0x80000, R10 // SFD_CLOEXEC
	SYS(289) // signalfd4
	TESTL AX, AX
	JLT  die
	MOVL $3, 192(BX)
	MOVL $1, 196(BX) // POLLIN
	MOVL AX, 200(BX)
	MOVL $1, 204(BX)
	XORL R14, R14
	MOVL $-1, 16(BX)
	MOVL $0x20000, 20(BX)
	SEND

next:
	LEAQ 192(BX), DI
	MOVL $2, SI
	MOVQ $-1, DX
	SYS(7) // poll
	CMPW 206(BX), $0
	JEQ  request
	MOVL 200(BX), DI
	LEAQ 64(BX), SI
	MOVL $128, DX
	SYS(0) // read

child:
	MOVQ $-1, DI
	MOVQ BX, SI
	MOVL $11, DX // WNOHANG | WUNTRACED | WCONTINUED
	LEAQ 32(BX), R10
	SYS(61) // wait4
	TESTQ AX, AX
	JLE  request
	XORL CX, CX
find:
	CMPL CX, R14
	JCC  child // an orphan
	MOVL -4096(BX)(CX*4), DX
	MOVL DX, SI
	ANDL $0x7fffffff, SI
	CMPL SI, AX
	JEQ  found
	INCL CX
	JMP  find
found:
	MOVL 0(BX), SI
	CMPL SI, $0xffff // continued
	JEQ  alive
	MOVL SI, DI
	ANDL $0xff, DI
	CMPL DI, $0x7f // stopped
	JEQ  alive
	MOVL $0, -4096(BX)(CX*4)
	TESTL DX, DX
	JGE  tell
	TESTL SI, SI // a session that was killed could tell nothing
	JEQ  child
tell:
	MOVL CX, 16(BX)
	MOVL SI, 20(BX)
	MOVL AX, 24(BX)
	SENDUSED
	JMP  child
alive:
	TESTL DX, DX
	JGE  tell
	JMP  child

request:
	CMPW 198(BX), $0
	JEQ  next
	LEAQ 320(BX), AX
	MOVQ AX, 208(BX) // struct iovec
	MOVQ $16, 216(BX)
	MOVQ $0, 224(BX) // struct msghdr
	MOVQ $0, 232(BX)
	LEAQ 208(BX), AX
	MOVQ AX, 240(BX)
	MOVQ $1, 248(BX)
	LEAQ 288(BX), AX
	MOVQ AX, 256(BX)
	MOVQ $32, 264(BX)
	MOVQ $0, 272(BX)
	MOVQ $0, 288(BX)
	MOVL $3, DI
	LEAQ 224(BX), SI
	MOVL $0x40000100, DX // MSG_CMSG_CLOEXEC | MSG_WAITALL
	SYS(47) // recvmsg
	CMPQ AX, $16
	JNE  die // the owner is gone
	CMPL 324(BX), $SLOTS
	JCC  die
	CMPL 320(BX), $1
	JEQ  run
	CMPL 320(BX), $2
	JNE  die

	MOVL 324(BX), CX
	MOVL -4096(BX)(CX*4), DI
	MOVL 328(BX), SI
	MOVL SI, DX
	ANDL $0xff, SI
	BTRL $31, DI
	JCS  one // the session knows whom it concerns
	BTL  $8, DX
	JCC  one
	NEGQ DI
one:
	TESTQ DI, DI
	JEQ  next // it has ended
	SYS(62) // kill
	JMP  next

run:
	CMPQ 288(BX), $28 // three descriptors
	JNE  die
	MOVL $BLOB, DI
	MOVL 332(BX), SI
	MOVL $3, DX
	MOVL $0x100022, R10 // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
	MOVQ $-1, R8
	XORL R9, R9
	SYS(9) // mmap
	CMPQ AX, $BLOB
	JNE  die
	MOVL $3, DI
	MOVL $BLOB, SI
	MOVL 332(BX), DX
	MOVL $0x100, R10 // MSG_WAITALL
	XORL R8, R8
	XORL R9, R9
	SYS(45) // recvfrom
	MOVL 332(BX), DX
	CMPQ AX, DX
	JNE  die
	MOVL $BLOB, R13
	MOVQ 64(R13), R9
	MOVQ 72(R13), R15
	MOVL $2, 8(BX)
	MOVL $0, 12(BX)
	MOVL $0x4111, DI // CLONE_VM | CLONE_VFORK | SIGCHLD
	BTL  $0, 8(R13)
	JCC  start
	MOVL $0x11, DI // a session outlives this request
start:
	XORL SI, SI
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	SYS(56) // clone
	TESTQ AX, AX
	JEQ  begin

	MOVQ AX, R12
	MOVQ 8(R13), R8
	MOVL 304(BX), DI
	SYS(3)
	MOVL 308(BX), DI
	SYS(3)
	MOVL 312(BX), DI
	SYS(3)
	MOVL $BLOB, DI
	MOVL 332(BX), SI
	SYS(11) // munmap
	MOVL 324(BX), CX
	MOVL CX, 16(BX)
	MOVL R12, 24(BX)
	TESTQ R12, R12
	JLT  unstarted
	CMPL 12(BX), $0
	JNE  unexecuted
	CMPL CX, R14
	JCS  known
	LEAL 1(CX), R14
known:
	MOVL R12, -4096(BX)(CX*4)
	BTL  $0, R8
	JCC  started
	ORL  $SESSION, -4096(BX)(CX*4)
	JMP  next
started:
	MOVL $0x20000, 20(BX)
	SEND
	JMP  next
unexecuted:
	MOVQ R12, DI
	MOVQ BX, SI
	XORL DX, DX
	XORL R10, R10
	SYS(61) // wait4
	MOVL 8(BX), AX
	JMP  refuse
unstarted:
	MOVQ R12, AX
	NEGL AX
refuse:
	ORL  $0x10000, AX
	MOVL AX, 20(BX)
	SEND
	JMP  next

begin:
	MOVL 304(BX), DI
	XORL SI, SI
	XORL DX, DX
	SYS(292) // dup3
	MOVL 308(BX), DI
	MOVL $1, SI
	SYS(292)
	MOVL 312(BX), DI
	MOVL $2, SI
	SYS(292)
	MOVQ 88(R13), DI
	TESTQ DI, DI
	JLT  enter
	SYS(95) // umask
enter:
	MOVQ 80(R13), DI
	TESTQ DI, DI
	JEQ  entered
	SYS(80) // chdir
	TESTQ AX, AX
	JLT  nowhere
entered:
	BTL  $0, 8(R13)
	JCC  command
	MOVL $4, DI
	MOVL $0xffffffff, SI
	XORL DX, DX
	SYS(436) // close_range
	SYS(112) // setsid
	JMP  session
nowhere:
	NEGL AX
	ORL  $0x40000, AX
	MOVL AX, 8(BX)
	BTL  $0, 8(R13)
	JCS  execfailed
	JMP  notfound
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4
	BYTE $0xba; BYTE $0x11; BYTE $0xe7; BYTE $0xe4

// func initCodeAddr() unsafe.Pointer
TEXT ·initCodeAddr(SB), NOSPLIT, $0-8
	LEAQ ·initCode(SB), AX
	MOVQ AX, ret+0(FP)
	RET
