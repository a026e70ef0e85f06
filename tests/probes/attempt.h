/* An attempt and how the kernel answered it, a line each: what the native probes share. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* C libraries older than this program do not have the name. */
static inline const char *errno_name(int error)
{
#define NAMED(name) case name: return #name
	switch (error) {
	NAMED(EPERM); NAMED(ENOENT); NAMED(ESRCH); NAMED(EINTR); NAMED(EIO); NAMED(ENXIO);
	NAMED(ENOEXEC); NAMED(EBADF); NAMED(ECHILD); NAMED(EAGAIN); NAMED(ENOMEM); NAMED(EACCES);
	NAMED(EFAULT); NAMED(EBUSY); NAMED(EEXIST); NAMED(EXDEV); NAMED(ENODEV); NAMED(ENOTDIR);
	NAMED(EISDIR); NAMED(EINVAL); NAMED(EMFILE); NAMED(ENOTTY); NAMED(ETXTBSY); NAMED(ENOSPC);
	NAMED(EROFS); NAMED(ERANGE); NAMED(ENOSYS); NAMED(ELOOP); NAMED(ENOMSG); NAMED(EIDRM);
	NAMED(EUSERS); NAMED(ENOLCK); NAMED(EOPNOTSUPP); NAMED(EOVERFLOW); NAMED(ENOKEY); NAMED(ENODATA);
	default: return "E?";
	}
#undef NAMED
}

static inline const char *signal_name(int signal)
{
#define NAMED(name) case name: return #name
	switch (signal) {
	NAMED(SIGILL); NAMED(SIGTRAP); NAMED(SIGABRT); NAMED(SIGBUS); NAMED(SIGFPE); NAMED(SIGKILL);
	NAMED(SIGSEGV); NAMED(SIGALRM); NAMED(SIGSYS); NAMED(SIGQUIT); NAMED(SIGXCPU); NAMED(SIGXFSZ);
	default: return "SIG?";
	}
#undef NAMED
}

static inline void say(const char *attempt, const char *answer)
{
	printf("%s %s\n", attempt, answer);
	/* A fork must find nothing to print again. */
	fflush(stdout);
}

/* `result` is a system call's, with -1 for what errno says. */
static inline void tell(const char *attempt, long result)
{
	say(attempt, result == -1 ? errno_name(errno) : "ok");
}

/* Tries it in a process of its own, which may lose what it succeeds in. */
static inline void tell_apart(const char *attempt, long (*try)(const void *), const void *context)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		alarm(5);
		_exit(try(context) == -1 ? errno : 0);
	}
	if (child == -1 || waitpid(child, &status, 0) != child)
		say(attempt, "not-tried");
	else if (WIFSIGNALED(status))
		say(attempt, signal_name(WTERMSIG(status)));
	else
		say(attempt, WEXITSTATUS(status) ? errno_name(WEXITSTATUS(status)) : "ok");
}

/* Says what the time is: it is the same for runs beside each other. */
static inline void say_time(const char *name)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	printf("%s %lld\n", name, now.tv_sec * 1000LL + now.tv_nsec / 1000000);
	fflush(stdout);
}
