/* Hard links to files of others, and set-id bits on own files: hard_links PLACE. */
#include "attempts.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Owned by root, readable to all. */
#define OTHERS "/etc/passwd"

static void link_to(const char *source)
{
	char path[64];
	int fd = open(source, O_RDONLY);
	attempt("link", link(source, "linked"));
	attempt("linkat", linkat(AT_FDCWD, source, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
	attempt("linkat_empty", linkat(fd, "", AT_FDCWD, "linked", AT_EMPTY_PATH));
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	attempt("linkat_proc", linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
	attempt("rename", rename(source, "renamed"));
	close(fd);
}

static void set_id_bits(void)
{
	int fd = open("own", O_RDWR);
	attempt("chmod", chmod("own", 04755));
	attempt("fchmod", fchmod(fd, 02755));
	attempt("fchmodat", fchmodat(AT_FDCWD, "own", 06755, 0));
	attempt("fchmodat2", syscall(452, AT_FDCWD, "own", 04755, 0));
	attempt("creat", syscall(SYS_openat, AT_FDCWD, "created", O_CREAT | O_WRONLY, 04755));
	attempt("tmpfile", syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, 02755));
	attempt("mknod", mknod("made", S_IFREG | 04755, 0));
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 2 || chdir(argv[1]))
		return 2;
	umask(0);
	attempt("own", open("own", O_CREAT | O_RDWR, 0644));
	attempt("own_link", link("own", "own_link"));
	link_to(OTHERS);
	set_id_bits();
	return 0;
}
