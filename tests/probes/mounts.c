/* Tries to change mounts, with the old calls and the new ones. */
#include "attempt.h"
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* The numbers are the same on every architecture; headers may be older. */
enum {
	OPEN_TREE = 428, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, FSPICK,
	MOUNT_SETATTR = 442, OPEN_TREE_ATTR = 467,
};

#define CLONE_TREE 1UL
#define RECURSIVE 0x8000UL

static void tell_old(void)
{
	tell("mount-tmpfs", mount("none", "/tmp/spot", "tmpfs", 0, ""));
	tell("mount-proc", mount("none", "/tmp/spot", "proc", 0, ""));
	tell("mount-cgroup", mount("none", "/tmp/spot", "cgroup2", 0, ""));
	tell("mount-overlay", mount("none", "/tmp/spot", "overlay", 0, "lowerdir=/usr:/etc"));
	tell("bind", mount("/usr", "/tmp/spot", NULL, MS_BIND, NULL));
	tell("bind-init-root", mount("/proc/1/root", "/tmp/spot", NULL, MS_BIND, NULL));
	tell("remount-usr", mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
	tell("remount-proc", mount(NULL, "/proc", NULL, MS_REMOUNT, NULL));
	tell("share", mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL));
	tell("move", mount("/proc", "/tmp/spot", NULL, MS_MOVE, NULL));
	tell("umount-proc", umount2("/proc", 0));
	tell("detach-proc", umount2("/proc", MNT_DETACH));
	tell("detach-mask", umount2("/proc/keys", MNT_DETACH));
	tell("detach-workspace", umount2("/workspace", MNT_DETACH));
	tell("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp/spot"));
	tell("chroot", chroot("/tmp"));
}

static void tell_new(void)
{
	unsigned long long writable[4] = {0, 1, 0, 0};
	long context = syscall(FSOPEN, "tmpfs", 0);
	long tree;

	tell("fsopen", context);
	tell("fsconfig", syscall(FSCONFIG, context, 6, NULL, NULL, 0));
	tell("fsmount", syscall(FSMOUNT, context, 0, 0));
	tell("fspick", syscall(FSPICK, AT_FDCWD, "/usr", 0));
	tree = syscall(OPEN_TREE, AT_FDCWD, "/usr", CLONE_TREE | RECURSIVE);
	tell("open_tree-clone", tree);
	tell("open_tree", syscall(OPEN_TREE, AT_FDCWD, "/usr", 0));
	tell("open_tree_attr", syscall(OPEN_TREE_ATTR, AT_FDCWD, "/usr", CLONE_TREE, writable, 32));
	tell("move_mount", syscall(MOVE_MOUNT, tree, "", AT_FDCWD, "/tmp/spot", 4));
	tell("mount_setattr", syscall(MOUNT_SETATTR, AT_FDCWD, "/usr", RECURSIVE, writable, 32));
}

static size_t read_mounts(char *text, size_t size)
{
	int file = open("/proc/self/mountinfo", O_RDONLY);
	size_t length = 0;
	ssize_t count;

	while ((count = read(file, text + length, size - length)) > 0)
		length += count;
	close(file);
	return length;
}

int main(void)
{
	static char before[1 << 16], after[sizeof(before)];
	size_t length = read_mounts(before, sizeof(before));

	mkdir("/tmp/spot", 0700);
	tell_old();
	tell_new();
	tell("write-tmp", open("/tmp/spot/file", O_CREAT | O_WRONLY, 0600));
	tell("write-usr", open("/usr/file", O_CREAT | O_WRONLY, 0600));
	tell("write-etc", open("/etc/passwd", O_WRONLY));
	say("mounts", length > 0 && read_mounts(after, sizeof(after)) == length
		&& !memcmp(before, after, length) ? "same" : "changed");
	return 0;
}
