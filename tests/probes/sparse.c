/* Files larger than their contents: sparse PLACE. Allocates blocks only in memory. */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define TEBIBYTE (1L << 40)
#define SMALL (32L << 20)
#define FILES 100
#define TMPFS 0x01021994

int main(int argc, char **argv)
{
	struct stat stat;
	struct statfs fs;
	char name[32];
	if (argc != 2 || chdir(argv[1]))
		return 2;
	signal(SIGXFSZ, SIG_IGN);
	int fd = open("sparse", O_CREAT | O_RDWR, 0644);
	attempt("small", ftruncate(fd, SMALL));
	attempt("truncate", ftruncate(fd, TEBIBYTE));
	attempt("write", pwrite(fd, "x", 1, TEBIBYTE));
	attempt("allocate", fallocate(fd, 0, 0, TEBIBYTE));
	if (statfs(".", &fs) == 0 && fs.f_type == TMPFS)
		attempt("allocate_keep", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, TEBIBYTE));
	attempt("memfd", ftruncate(memfd_create("sparse", 0), TEBIBYTE));
	for (int number = 0; number < FILES; number++) {
		snprintf(name, sizeof name, "sparse%d", number);
		ftruncate(open(name, O_CREAT | O_RDWR, 0644), SMALL);
	}
	fstat(fd, &stat);
	count("size", stat.st_size);
	count("blocks", stat.st_blocks);
	return 0;
}
