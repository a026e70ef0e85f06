/* Takes more memory than the run may have, in children, so that the parent can report: memory WAY...
 * Each WAY answers "killed" (by the kernel), "refused" (the call), or what it took, in MiB. */
#include "attempts.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1L << 20)
/* Stops at twice the default memory limit of a run. */
#define MOST (1536 * MIB)
#define HALF (500 * MIB)

/* The program's own bss exceeds the memory limit. */
static char bss[MOST];

static int touch(char *from, long bytes)
{
	if (from == MAP_FAILED)
		return 1;
	for (long at = 0; at < bytes; at += 4096)
		from[at] = 1;
	return 0;
}

static char *map(long bytes, int flags)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

static int anonymous(void) { return touch(map(MOST, MAP_PRIVATE), MOST); }
static int shared(void) { return touch(map(MOST, MAP_SHARED), MOST); }
static int uninitialised(void) { return touch(bss, MOST); }
static int populated(void) { return map(MOST, MAP_PRIVATE | MAP_POPULATE) == MAP_FAILED; }

static int locked(void)
{
	/* The limit on locked memory applies first, then the memory limit. */
	return mlockall(MCL_CURRENT | MCL_FUTURE) || touch(map(MOST, MAP_PRIVATE), MOST);
}

static int paged_out(void)
{
	for (long taken = 0; taken < MOST; taken += 64 * MIB) {
		char *piece = map(64 * MIB, MAP_PRIVATE);
		if (touch(piece, 64 * MIB))
			return 1;
		madvise(piece, 64 * MIB, MADV_PAGEOUT);
	}
	return 0;
}

/* A fork shares the parent's pages at no cost until it writes to them. */
static int copied_on_write(void)
{
	char *pages = map(HALF, MAP_PRIVATE);
	int status, lost = 0;
	touch(pages, HALF);
	for (int child = 0; child < 2; child++)
		if (fork() == 0) {
			touch(pages, HALF);
			sleep(1);
			_exit(0);
		}
	while (wait(&status) > 0)
		lost |= WIFSIGNALED(status);
	if (lost)
		raise(SIGKILL);
	return 0;
}

/* The memory of dead children is free again, so this must succeed. */
static int one_after_another(void)
{
	for (int child = 0; child < 4; child++) {
		int status;
		if (fork() == 0)
			_exit(touch(map(HALF, MAP_PRIVATE), HALF));
		wait(&status);
		if (status)
			raise(SIGKILL);
	}
	return 0;
}

static const struct {
	const char *name;
	int (*take)(void);
	long taken;
} ways[] = {
	{"anonymous", anonymous, MOST},	    {"shared", shared, MOST},
	{"bss", uninitialised, MOST},	    {"populated", populated, MOST},
	{"locked", locked, MOST},	    {"paged_out", paged_out, MOST},
	{"copied", copied_on_write, 3 * HALF}, {"one_after_another", one_after_another, HALF},
};

static void try(const char *name, int (*take)(void), long taken)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		alarm(12);
		_exit(take());
	}
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("%s %s\n", name, WTERMSIG(status) == SIGKILL ? "killed" : strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		printf("%s refused\n", name);
	else
		printf("%s %ld\n", name, taken / MIB);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	for (int arg = 1; arg < argc; arg++)
		for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++)
			if (strcmp(argv[arg], ways[way].name) == 0)
				try(ways[way].name, ways[way].take, ways[way].taken);
	return 0;
}
