/* A directory in a directory in a directory: deep_tree PLACE DEPTH. Tells how deep it got and why no deeper. */
#include "attempts.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[1]))
		return 2;
	long depth = 0, wanted = atol(argv[2]);
	int at = open(".", O_RDONLY | O_DIRECTORY);
	errno = 0;
	while (depth < wanted && mkdirat(at, "d", 0755) == 0) {
		int below = openat(at, "d", O_RDONLY | O_DIRECTORY);
		if (below < 0)
			break;
		close(at);
		at = below;
		depth++;
	}
	attempt("end", errno ? -1 : 0);
	count("depth", depth);
	return 0;
}
