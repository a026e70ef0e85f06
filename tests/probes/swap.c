/* Exchanges a directory and a link to another one endlessly: swap PLACE TARGET MILLISECONDS.
 * Reports the number of swaps in that time; a child in its own session continues until the run ends. */
#include "attempts.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BACKGROUND_SECONDS 10

static long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static long swap_for(long milliseconds)
{
	long swaps = 0;
	for (long end = now_ms() + milliseconds; now_ms() < end;)
		for (int turn = 0; turn < 64; turn++)
			swaps += renameat2(AT_FDCWD, "d", AT_FDCWD, "l", RENAME_EXCHANGE) == 0;
	return swaps;
}

int main(int argc, char **argv)
{
	if (argc != 4 || chdir(argv[1]))
		return 2;
	mkdir("d", 0777);
	close(open("d/file", O_CREAT | O_WRONLY, 0666));
	symlink(argv[2], "l");
	count("swaps", swap_for(atol(argv[3])));
	if (fork() == 0) {
		setsid();
		close(1);
		close(2);
		swap_for(BACKGROUND_SECONDS * 1000);
	}
	return 0;
}
