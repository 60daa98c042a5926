// Builds the filter of the package with libseccomp and writes it as BPF.
//
// Usage: libseccomp EPERM-NUMBERS ENOSYS-NUMBERS FAMILIES MAIN SOCKETS
// with comma-separated numbers and the names of two files: the filter without
// the socket calls, and one for them alone, because libseccomp cannot say "none
// of these families" in one rule. The kernel would run both.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOW 0xffffffffu

static void check(int rc, const char *what) {
	if (rc < 0) {
		fprintf(stderr, "%s: %s\n", what, strerror(-rc));
		exit(1);
	}
}

static void refuse(scmp_filter_ctx f, char *list, int err) {
	for (char *nr = strtok(list, ","); nr; nr = strtok(NULL, ","))
		check(seccomp_rule_add(f, SCMP_ACT_ERRNO(err), atoi(nr), 0), nr);
}

static void masked(scmp_filter_ctx f, int nr, int arg, unsigned mask, unsigned value) {
	check(seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr, 1, SCMP_CMP(arg, SCMP_CMP_MASKED_EQ, mask, value)), "masked");
}

// setid refuses setuid and setgid bits in the argument that is a file's mode.
static void setid(scmp_filter_ctx f, int nr, int mode) {
	masked(f, nr, mode, S_ISUID, S_ISUID);
	masked(f, nr, mode, S_ISGID, S_ISGID);
}

// creating does so where the flags say that a file may be made.
static void creating(scmp_filter_ctx f, int nr, int flags, int mode) {
	static const unsigned creates[] = {O_CREAT, O_TMPFILE & ~O_DIRECTORY}, bits[] = {S_ISUID, S_ISGID};
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			check(seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), nr, 2, SCMP_CMP(flags, SCMP_CMP_MASKED_EQ, creates[i], creates[i]),
				SCMP_CMP(mode, SCMP_CMP_MASKED_EQ, bits[j], bits[j])), "creating");
}

static void export(scmp_filter_ctx f, const char *name) {
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	check(fd < 0 ? -errno : 0, name);
	check(seccomp_export_bpf(f, fd), "export");
	close(fd);
}

static void main_filter(char *eperm, char *enosys, const char *name) {
	static const unsigned namespaces[] = {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET};
	static const unsigned ioctls[] = {TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, 0x50009401, 0x50009417};
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
	check(seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "architecture");
	refuse(f, eperm, EPERM);
	refuse(f, enosys, ENOSYS);
	for (unsigned i = 0; i < sizeof namespaces / sizeof *namespaces; i++)
		masked(f, SCMP_SYS(clone), 0, namespaces[i], namespaces[i]);
	for (unsigned i = 0; i < sizeof ioctls / sizeof *ioctls; i++)
		masked(f, SCMP_SYS(ioctl), 1, LOW, ioctls[i]);
	masked(f, SCMP_SYS(mknodat), 2, S_IFMT, S_IFCHR);
	masked(f, SCMP_SYS(mknodat), 2, S_IFMT, S_IFBLK);
	setid(f, SCMP_SYS(mknodat), 2);
	setid(f, SCMP_SYS(fchmod), 1);
	setid(f, SCMP_SYS(fchmodat), 2);
	setid(f, 452, 2); // fchmodat2
	creating(f, SCMP_SYS(openat), 2, 3);
#ifdef __x86_64__
	setid(f, SCMP_SYS(mknod), 1);
	setid(f, SCMP_SYS(chmod), 1);
	setid(f, SCMP_SYS(creat), 1);
	creating(f, SCMP_SYS(open), 1, 2);
	masked(f, SCMP_SYS(mknod), 1, S_IFMT, S_IFCHR);
	masked(f, SCMP_SYS(mknod), 1, S_IFMT, S_IFBLK);
#endif
	export(f, name);
}

static void socket_filter(char *families, const char *name) {
	scmp_filter_ctx f = seccomp_init(SCMP_ACT_ERRNO(EAFNOSUPPORT));
	for (char *s = strtok(families, ","); s; s = strtok(NULL, ",")) {
		unsigned family = atoi(s);
		struct scmp_arg_cmp args[] = {SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, family), SCMP_A2(SCMP_CMP_MASKED_EQ, LOW, 0)};
		check(seccomp_rule_add_array(f, SCMP_ACT_ALLOW, SCMP_SYS(socket), family == AF_NETLINK ? 2 : 1, args), "socket");
	}
	check(seccomp_rule_add(f, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, LOW, AF_UNIX)), "socketpair");
	export(f, name);
}

int main(int argc, char **argv) {
	if (argc != 6)
		return 2;
	main_filter(argv[1], argv[2], argv[4]);
	socket_filter(argv[3], argv[5]);
	return 0;
}
