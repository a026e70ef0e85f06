/* Flushes the disk of a file: flush FILE COUNT. */
#include "attempts.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int pipes[2], file = argc == 3 ? open(argv[1], O_RDONLY) : -1;
	if (file < 0 || pipe(pipes))
		return 2;
	void *mapped = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
	for (long left = atol(argv[2]); left > 0; left--)
		fsync(file);
	attempt("fsync", fsync(file));
	attempt("fdatasync", fdatasync(file));
	attempt("msync", msync(mapped, 1, MS_SYNC));
	/* The kernel refuses this with an error that differs from the filter's. */
	attempt("fsync-pipe", fsync(pipes[0]));
	attempt("fdatasync-pipe", fdatasync(pipes[0]));
	attempt("range-pipe", sync_file_range(pipes[0], 0, 0, SYNC_FILE_RANGE_WRITE));
	attempt("msync-nothing", msync(NULL, 4096, MS_SYNC));
	attempt("syncfs", syncfs(file));
	return 0;
}
