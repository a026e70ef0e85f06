/* Tries to inspect and control its own child, its parent and PID 1. */
#include "attempt.h"
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

enum { PIDFD_OPEN = 434, PIDFD_GETFD = 438, PROCESS_MADVISE = 440 };

static long secret = 42;

static long try_traceme(const void *context)
{
	(void)context;
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void tell_process(const char *whose, pid_t pid)
{
	char name[64], path[64];
	long copy = 0;
	struct iovec here = {&copy, sizeof(copy)}, there = {&secret, sizeof(secret)};
	long pidfd = syscall(PIDFD_OPEN, pid, 0);
#define NAMED(what) (snprintf(name, sizeof(name), "%s-%s", what, whose), name)
	tell(NAMED("pidfd_open"), pidfd);
	tell(NAMED("seize"), ptrace(PTRACE_SEIZE, pid, NULL, NULL));
	tell(NAMED("attach"), ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	tell(NAMED("peek"), ptrace(PTRACE_PEEKDATA, pid, &secret, NULL));
	tell(NAMED("readv"), syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0));
	tell(NAMED("writev"), syscall(SYS_process_vm_writev, pid, &here, 1, &there, 1, 0));
	tell(NAMED("pidfd_getfd"), syscall(PIDFD_GETFD, pidfd, 0, 0));
	tell(NAMED("kcmp"), syscall(SYS_kcmp, getpid(), pid, 0, 0, 0));
	/* MADV_COLD needs only read access. */
	tell(NAMED("process_madvise"), syscall(PROCESS_MADVISE, pidfd, &there, 1, 20, 0));
	if (pid != 1)
		return;
	for (const char *const *file = (const char *const[]){"mem", "maps", "environ", "auxv",
		"syscall", "stack", "personality", "fd", "root", "cwd", "map_files", NULL}; *file; file++) {
		snprintf(path, sizeof(path), "/proc/1/%s", *file);
		int opened = open(path, O_RDONLY);
		char byte;
		/* What can be opened is refused at the read, where a directory has none. */
		tell(NAMED(*file), opened == -1 ? -1 : read(opened, &byte, 1));
	}
#undef NAMED
}

int main(void)
{
	pid_t child = fork();

	if (child == 0) {
		alarm(10);
		for (;;)
			pause();
	}
	tell_apart("traceme", try_traceme, NULL);
	tell_process("child", child);
	tell_process("parent", getppid());
	tell_process("init", 1);
	tell("kill-child", kill(child, SIGKILL));
	say("child", waitpid(child, NULL, 0) == child ? "ended" : "lost");
	return 0;
}
