/* Creates empty files until the limit: inodes PLACE MOST. Then waits to be killed. */
#include "attempts.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char name[32];
	long made = 0, most = argc == 3 ? atol(argv[2]) : 0;
	if (argc != 3 || chdir(argv[1]))
		return 2;
	errno = 0;
	for (; made < most; made++) {
		snprintf(name, sizeof name, "%ld", made);
		int fd = open(name, O_CREAT | O_WRONLY | O_EXCL, 0644);
		if (fd < 0)
			break;
		close(fd);
	}
	attempt("end", errno ? -1 : 0);
	count("files", made);
	return 0;
}
