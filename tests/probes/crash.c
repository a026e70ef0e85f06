/* Crashes in every way that dumps core, after enabling core dumps as far as possible. */
#include "attempt.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static const int SIGNALS[] = {SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS,
			      SIGXCPU, SIGXFSZ};

static long try_limit(const void *context)
{
	const rlim_t bytes = *(const rlim_t *)context;
	const struct rlimit limit = {bytes, bytes};

	return setrlimit(RLIMIT_CORE, &limit);
}

static void crash(int signal_number)
{
	struct rlimit limit;

	getrlimit(RLIMIT_CORE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_CORE, &limit);
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	signal(signal_number, SIG_DFL);
	raise(signal_number);
	_exit(0);
}

static void tell_crash(const char *directory, int signal_number)
{
	char name[64];
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		if (chdir(directory))
			_exit(1);
		crash(signal_number);
	}
	waitpid(child, &status, 0);
	snprintf(name, sizeof(name), "%s-in-%s", signal_name(signal_number), directory);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != signal_number)
		say(name, "no-crash");
	else
		say(name, WCOREDUMP(status) ? "dumped" : "crashed");
}

int main(void)
{
	const rlim_t sizes[] = {1 << 20, RLIM_INFINITY};
	struct rlimit limit;

	tell_apart("raise-limit", try_limit, &sizes[0]);
	tell_apart("raise-limit-for-good", try_limit, &sizes[1]);
	getrlimit(RLIMIT_CORE, &limit);
	/* Less than the size of any core file. */
	say("limit", limit.rlim_cur < 4096 && limit.rlim_max < 4096 ? "none" : "some");
	for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(*SIGNALS); i++) {
		tell_crash("/workspace", SIGNALS[i]);
		tell_crash("/tmp", SIGNALS[i]);
	}
	return 0;
}
