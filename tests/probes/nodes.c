/* Creates special files of every kind: nodes PLACE. Replaces every name there by fifos and sockets. */
#include "attempts.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static long listening(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strncpy(address.sun_path, name, sizeof address.sun_path - 1);
	return fd < 0 ? fd : bind(fd, (struct sockaddr *)&address, sizeof address) ?: listen(fd, 1);
}

/* The names of this directory, and as many new ones of each kind. */
static long replace_all(void)
{
	DIR *directory = opendir(".");
	struct dirent *entry;
	char names[64][256];
	int count = 0;
	long replaced = 0;
	while ((entry = readdir(directory)) && count < 64)
		if (entry->d_type == DT_REG)
			strcpy(names[count++], entry->d_name);
	closedir(directory);
	for (int name = 0; name < count; name++) {
		unlink(names[name]);
		replaced += (name % 2 ? listening(names[name]) : mkfifo(names[name], 0666)) == 0;
	}
	return replaced;
}

int main(int argc, char **argv)
{
	if (argc != 2 || chdir(argv[1]))
		return 2;
	attempt("fifo", mkfifo("fifo", 0666));
	attempt("socket", listening("socket"));
	attempt("file", mknod("file", S_IFREG | 0600, 0));
	attempt("null", mknod("null", S_IFCHR | 0666, makedev(1, 3)));
	attempt("disk", mknod("disk", S_IFBLK | 0666, makedev(8, 0)));
	attempt("disk_at", mknodat(AT_FDCWD, "disk", S_IFBLK | 0666, makedev(253, 0)));
	attempt("nothing", mknod("nothing", S_IFCHR | 0666, makedev(0, 0)));
	attempt("nothing_block", mknod("nothing_block", S_IFBLK | 0666, makedev(0, 0)));
	attempt("whiteout", renameat2(AT_FDCWD, "file", AT_FDCWD, "file2", RENAME_WHITEOUT));
	count("replaced", replace_all());
	return 0;
}
