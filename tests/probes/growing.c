/* A file that grows during the run and after its program has ended: growing FILE.
 * Reports its size; the writing child has its own session and stops at 256 MiB. */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GROWN_MAX (256L << 20)

int main(int argc, char **argv)
{
	static char block[1 << 16];
	struct stat stat;
	int fd = argc == 2 ? open(argv[1], O_CREAT | O_WRONLY | O_APPEND, 0644) : -1;
	if (fd < 0)
		return 2;
	signal(SIGXFSZ, SIG_IGN);
	if (fork() == 0) {
		setsid();
		close(1);
		close(2);
		/* Starts over at the limit of a file's size, so that it always grows. */
		for (long grown = 0; grown < GROWN_MAX; grown += sizeof block) {
			if (write(fd, block, sizeof block) < 0 && ftruncate(fd, 0))
				return 0;
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
		}
		return 0;
	}
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	fstat(fd, &stat);
	count("size", stat.st_size);
	return 0;
}
