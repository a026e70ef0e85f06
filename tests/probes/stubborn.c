/* Files and directories that are hard to remove: stubborn PLACE. */
#include "attempts.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static long set_flags(const char *path, int flags)
{
	int fd = open(path, O_RDONLY), now = 0;
	ioctl(fd, FS_IOC_GETFLAGS, &now);
	flags |= now;
	return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static long set_project(const char *path, unsigned project)
{
	struct fsxattr attributes = {0};
	int fd = open(path, O_RDONLY);
	if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes))
		return -1;
	attributes.fsx_projid = project;
	return ioctl(fd, FS_IOC_FSSETXATTR, &attributes);
}

int main(int argc, char **argv)
{
	char name[32];
	if (argc != 2 || chdir(argv[1]))
		return 2;
	attempt("mkdir", mkdir("flags", 0755));
	attempt("immutable", set_flags("flags", FS_IMMUTABLE_FL));
	attempt("append", set_flags("flags", FS_APPEND_FL));
	attempt("project", set_project("flags", 4711));
	attempt("attribute", setxattr("flags", "user.x", "y", 1, 0));
	attempt("acl", setxattr("flags", "system.posix_acl_access", "\2\0\0\0", 4, 0));
	attempt("capability", setxattr("flags", "security.capability", "\1\0\0\2", 4, 0));
	for (int number = 0; number < 100; number++) {
		snprintf(name, sizeof name, "closed%d", number);
		mkdir(name, 0755);
		chdir(name);
		close(open("file", O_CREAT | O_WRONLY, 0));
		mkdir("sticky", 01777);
		chdir("..");
		chmod(name, number % 2 ? 0 : 01000);
	}
	attempt("closed", chmod("flags", 0));
	return 0;
}
