/* Makes starved processes hold the lock of the run's pipe: pipe_lock FD. Idle-priority processes write
 * thousands of tiny pieces per call, each call under the lock, while others spin. The output stays small. */
#include "attempts.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#define WRITERS 100
#define SPINNERS 16
#define PIECES 1024

static void be_idle(int policy)
{
	struct sched_param none = {0};
	sched_setscheduler(0, policy, &none);
	setpriority(PRIO_PROCESS, 0, 19);
}

/* Empty pieces except the last, each in its own page that is not yet mapped in. */
static void write_slowly(int fd, int number)
{
	struct iovec pieces[PIECES];
	for (;;) {
		char *pages = mmap(NULL, PIECES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int piece = 0; piece < PIECES; piece++)
			pieces[piece] = (struct iovec){pages + piece * 4096L, piece % 64 == 63};
		ssize_t said = number % 2 ? vmsplice(fd, pieces + PIECES - 8, 8, 0) : writev(fd, pieces, PIECES);
		munmap(pages, PIECES * 4096);
		if (said < 0)
			pause();
	}
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? atoi(argv[1]) : 1;
	alarm(15);
	fcntl(fd, F_SETPIPE_SZ, 1 << 20);
	for (int number = 0; number < WRITERS; number++)
		if (fork() == 0) {
			be_idle(number % 3 ? SCHED_IDLE : SCHED_BATCH);
			alarm(15);
			write_slowly(fd, number);
		}
	for (int number = 0; number < SPINNERS; number++)
		if (fork() == 0) {
			alarm(15);
			for (;;)
				;
		}
	for (;;)
		;
}
