/* Floods the run's pipes: flood HOW STDOUT STDERR, two descriptors of which either may be -1. HOW is block,
 * byte, vmsplice, splice, children or stay (a child in its own session that holds the pipe while its parent ends). */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* Stops at twice the default output limit of a run. */
#define MOST (2L << 20)

static char block[1 << 16];

static ssize_t write_block(int fd) { return write(fd, block, sizeof block); }
static ssize_t write_byte(int fd) { return write(fd, block, 1); }

static ssize_t gift(int fd)
{
	struct iovec all = {block, sizeof block};
	return vmsplice(fd, &all, 1, 0);
}

static ssize_t from_file(int fd)
{
	static int file = -1;
	if (file < 0) {
		file = open("/tmp/flood", O_CREAT | O_RDWR, 0600);
		if (write(file, block, sizeof block) < 0)
			return -1;
	}
	return splice(file, &(off_t){0}, fd, NULL, sizeof block, 0);
}

static void flood(int fd, ssize_t (*put)(int))
{
	ssize_t bytes;
	for (long said = 0; fd >= 0 && said < MOST && (bytes = put(fd)) > 0; said += bytes)
		;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *how = argv[1];
	int out = atoi(argv[2]), err = atoi(argv[3]), children = 1;
	ssize_t (*put)(int) = write_block;
	memset(block, 'x', sizeof block);
	if (strcmp(how, "byte") == 0)
		put = write_byte;
	if (strcmp(how, "vmsplice") == 0)
		put = gift;
	if (strcmp(how, "splice") == 0)
		put = from_file;
	if (strcmp(how, "children") == 0)
		children = 16;
	for (int child = 0; child < children; child++)
		if (fork() == 0) {
			setsid();
			if (fork() == 0)
				flood(out, put);
			else
				flood(err, put);
			/* Holds the pipes, whatever it could write. */
			sleep(10);
			_exit(0);
		}
	if (strcmp(how, "stay") != 0)
		sleep(10);
	return 0;
}
