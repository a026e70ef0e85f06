/* Fills the writable places completely: fill_disk PLACE... Reports the MiB, the error, and the kind of file
 * system ("memory" or a number). */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/statfs.h>
#include <unistd.h>

#define MIB (1L << 20)
/* Stops at twice the default disk limit of a run. */
#define MOST 1024
#define TMPFS 0x01021994

static long fill(const char *place)
{
	static char block[MIB];
	char path[256];
	long filled = 0;
	for (int number = 0; filled < MOST; number++) {
		snprintf(path, sizeof path, "%s/full%d", place, number);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		long before = filled;
		while (fd >= 0 && filled < MOST && write(fd, block, MIB) == MIB)
			filled++;
		if (fd >= 0)
			close(fd);
		if (filled == before)
			break;
	}
	return filled;
}

int main(int argc, char **argv)
{
	struct statfs fs;
	long filled = 0;
	signal(SIGXFSZ, SIG_IGN);
	for (int place = 1; place < argc; place++) {
		statfs(argv[place], &fs);
		printf("%s %s\n", argv[place], fs.f_type == TMPFS ? "memory" : "disk");
		errno = 0;
		filled += fill(argv[place]);
	}
	attempt("end", errno ? -1 : 0);
	count("filled", filled);
	return 0;
}
