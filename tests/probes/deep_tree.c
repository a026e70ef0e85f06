/* Nests directories: deep_tree PLACE DEPTH SECONDS. Reports the depth and the reason for the end:
 * with rules on paths, each step takes time proportional to the depth. */
#include "attempts.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 4 || chdir(argv[1]))
		return 2;
	time_t until = time(NULL) + atol(argv[3]);
	long depth = 0, wanted = atol(argv[2]);
	int at = open(".", O_RDONLY | O_DIRECTORY);
	errno = 0;
	while (depth < wanted && time(NULL) < until && mkdirat(at, "d", 0755) == 0) {
		int below = openat(at, "d", O_RDONLY | O_DIRECTORY);
		if (below < 0)
			break;
		close(at);
		at = below;
		depth++;
	}
	if (depth < wanted && !errno)
		errno = ETIME;
	attempt("end", errno ? -1 : 0);
	count("depth", depth);
	return 0;
}
