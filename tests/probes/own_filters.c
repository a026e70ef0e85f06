/* Adds its own filters to the existing ones, and tries to receive notifications about calls. */
#include "attempt.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>

#define HIGH_BIT (1UL << 32)
#define NOTIFY 0x7fc00000

struct attempt {
	unsigned long flags;
	unsigned verdict;
};

static long install(unsigned long operation, unsigned long flags, unsigned call, unsigned verdict)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, verdict),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return syscall(SYS_seccomp, operation, flags, &program);
}

static long try_flags(const void *context)
{
	const struct attempt *attempt = context;

	return install(1, attempt->flags, SYS_getppid, attempt->verdict);
}

/* Whether the verdict takes effect, and from which filter. */
static long try_call(const void *context)
{
	if (try_flags(context) == -1)
		return -1;
	errno = ERANGE;
	return syscall(SYS_getppid) == -1 ? -1 : 0;
}

static long try_prctl(const void *context)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {1, &allow};

	(void)context;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* A filter that allows everything does not override an earlier one. */
static long try_to_lift(const void *context)
{
	try_prctl(context);
	return syscall(SYS_unshare, CLONE_NEWUSER);
}

int main(int argc, char **argv)
{
	const struct attempt attempts[] = {
		{0, SECCOMP_RET_ERRNO | EXDEV}, {1, SECCOMP_RET_ERRNO | EXDEV},
		{8, SECCOMP_RET_ALLOW}, {8, NOTIFY}, {8 | 1 | 16, NOTIFY}, {8 | 32, NOTIFY},
		{8 | 2 | 4, NOTIFY}, {8 | HIGH_BIT, NOTIFY}, {1 << 6, SECCOMP_RET_ALLOW},
		{0, NOTIFY}, {0, SECCOMP_RET_TRACE},
	};
	const char *names[] = {"narrow", "narrow-all-threads", "listener-unused", "listener",
			       "listener-all-threads", "listener-killable", "listener-logged",
			       "listener-high-bit", "unknown-flag", "notify-nobody", "trace-nobody"};

	if (argc > 1 && !strcmp(argv[1], "refuse-to-end")) {
		/* From here on it can neither exit nor report. */
		install(1, 0, SYS_exit_group, SECCOMP_RET_ERRNO | EPERM);
		install(1, 0, SYS_exit, SECCOMP_RET_ERRNO | EPERM);
		install(1, 0, SYS_write, SECCOMP_RET_ERRNO | EPERM);
		for (;;)
			syscall(SYS_exit_group, 0);
	}
	for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++)
		tell_apart(names[i], strstr(names[i], "listener") ? try_flags : try_call, &attempts[i]);
	tell_apart("prctl", try_prctl, NULL);
	tell_apart("lift", try_to_lift, NULL);
	return 0;
}
