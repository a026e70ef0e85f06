/* Takes many file locks on a file readable to all: lock_pile WAY FILE [MILLISECONDS]. Reports how long it held them.
 * With the way "die" it is killed while holding them, along with many processes that have the file open. */
#include "attempt.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define FLOCKS_MAX 12000
#define HOLDERS 80
#define HOLDER_FILES 150

static int lock(int fd, int command, short type, long start, long length)
{
	struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
	return fcntl(fd, command, &range);
}

static void say_count(const char *attempt, long count, int error)
{
	char answer[64];
	snprintf(answer, sizeof answer, "%ld %s", count, error ? errno_name(error) : "ok");
	say(attempt, answer);
}

/* One lock that is split repeatedly. */
static void pile_records(const char *file, long most)
{
	int fd = open(file, O_RDONLY);
	long count = 0;
	errno = 0;
	if (lock(fd, F_SETLK, F_RDLCK, 0, 2 * most) == 0)
		while (++count < most && lock(fd, F_SETLK, F_UNLCK, 2 * (most - count), 1) == 0)
			;
	say_count("records", count, count < most ? errno : 0);
}

/* Each lock on a mapping whose descriptor is closed. */
static void pile_mapped(const char *file)
{
	long count = 0;
	for (errno = 0; count < FLOCKS_MAX; count++) {
		int fd = open(file, O_RDONLY);
		if (flock(fd, LOCK_SH | LOCK_NB) != 0)
			break;
		if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			break;
		close(fd);
	}
	say_count("mapped", count, count < FLOCKS_MAX ? errno : 0);
}

/* Each lock with its own descriptor, in many processes that stay alive. */
static void pile_descriptors(const char *file)
{
	int pipes[2];
	long total = 0, refused = 0;
	if (pipe(pipes) != 0)
		return;
	for (int holder = 0; holder < HOLDERS; holder++) {
		long told[2] = {0, 0};
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (errno = 0; told[0] < HOLDER_FILES; told[0]++)
				if (flock(open(file, O_RDONLY), LOCK_SH | LOCK_NB) != 0)
					break;
			told[1] = told[0] < HOLDER_FILES ? errno : 0;
			if (write(pipes[1], told, sizeof told) != sizeof told)
				_exit(1);
			pause();
			_exit(0);
		}
		if (read(pipes[0], told, sizeof told) != sizeof told)
			break;
		total += told[0];
		refused = told[1] ? told[1] : refused;
	}
	say_count("descriptors", total, refused);
}

static int end_at_once(void *unused)
{
	(void)unused;
	return 0;
}

static void ask_for_hidden_locks(const char *file)
{
	static char stack[65536] __attribute__((aligned(16)));
	int fd = open(file, O_RDONLY), flags = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
	tell("description", lock(fd, F_OFD_SETLK, F_RDLCK, 0, 1));
	tell("description-wait", lock(fd, F_OFD_SETLKW, F_RDLCK, 0, 1));
	tell("description-ask", lock(fd, F_OFD_GETLK, F_WRLCK, 0, 1));
	tell("own-table", clone(end_at_once, stack + sizeof stack, flags, NULL));
	usleep(100000);
}

/* Processes that close the file thousands of times when they end. */
static void wait_to_die(const char *file)
{
	for (int process = 0; process < 200; process++)
		if (fork() == 0) {
			for (int file_index = 0; file_index < 15; file_index++)
				if (open(file, O_RDONLY) < 0)
					break;
			pause();
			_exit(0);
		}
	pause();
}

int main(int argc, char **argv)
{
	const char *way = argc > 2 ? argv[1] : "", *file = argv[argc > 2 ? 2 : 0];
	alarm(15);
	if (strcmp(way, "hidden") == 0)
		ask_for_hidden_locks(file);
	if (strcmp(way, "records") == 0)
		pile_records(file, 200000);
	if (strcmp(way, "mapped") == 0)
		pile_mapped(file);
	if (strcmp(way, "descriptors") == 0)
		pile_descriptors(file);
	if (strcmp(way, "die") == 0) {
		pile_records(file, 40000);
		wait_to_die(file);
	}
	say_time("from");
	usleep(argc > 3 ? atoi(argv[3]) * 1000 : 0);
	say_time("until");
	return 0;
}
