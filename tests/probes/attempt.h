/* Prints a line per attempt with the kernel's answer; shared by the native probes. */
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

/* Older C libraries lack the name. */
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
	/* A forked child must not print buffered output again. */
	fflush(stdout);
}

/* `result` is that of a system call; -1 stands for the error in errno. */
static inline void tell(const char *attempt, long result)
{
	say(attempt, result == -1 ? errno_name(errno) : "ok");
}

/* Tries it in a child process, so that a success has no effect here. */
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

/* Prints the time, which is the same in concurrent runs. */
static inline void say_time(const char *name)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	printf("%s %lld\n", name, now.tv_sec * 1000LL + now.tv_nsec / 1000000);
	fflush(stdout);
}
