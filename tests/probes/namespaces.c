/* Tries to create a namespace or to enter an existing one. */
#include "attempt.h"
#include <fcntl.h>
#include <sys/ioctl.h>

#define HIGH_BIT (1UL << 32)

static const struct kind {
	const char *name;
	unsigned long flag;
} KINDS[] = {
	{"mnt", 0x00020000}, {"cgroup", 0x02000000}, {"uts", 0x04000000}, {"ipc", 0x08000000},
	{"user", 0x10000000}, {"pid", 0x20000000}, {"net", 0x40000000}, {"time", 0x80},
};

struct map {
	const char *path, *text;
};

static long try_unshare(const void *flag)
{
	return syscall(SYS_unshare, *(const unsigned long *)flag);
}

static long try_clone(const void *flag)
{
	long child = syscall(SYS_clone, *(const unsigned long *)flag | SIGCHLD, 0, 0, 0, 0);

	if (child == 0)
		_exit(0);
	return child;
}

static long clone3(unsigned long flags, size_t size)
{
	unsigned long long args[11] = {flags, 0, 0, 0, SIGCHLD};
	long child = syscall(435, args, size);

	if (child == 0)
		_exit(0);
	return child;
}

static long try_clone3(const void *flag)
{
	return clone3(*(const unsigned long *)flag, 88);
}

static long try_clone3_of_no_size(const void *flag)
{
	return clone3(*(const unsigned long *)flag, 0);
}

static int open_namespace(const char *process, const char *kind)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/%s", process, kind);
	return open(path, O_RDONLY);
}

static long try_setns_to_init(const void *context)
{
	const struct kind *kind = context;
	int namespace = open_namespace("1", kind->name);

	return namespace == -1 ? -1 : syscall(SYS_setns, namespace, 0);
}

static long try_setns_by_pidfd(const void *context)
{
	long init = syscall(434, 1, 0);

	return init == -1 ? -1 : syscall(SYS_setns, init, ((const struct kind *)context)->flag);
}

static long try_map(const void *context)
{
	const struct map *map = context;
	int file = open(map->path, O_WRONLY);

	return file == -1 ? -1 : write(file, map->text, strlen(map->text));
}

static void tell_kind(const struct kind *kind)
{
	char name[64];
	int own = open_namespace("self", kind->name);
#define NAMED(what) (snprintf(name, sizeof(name), "%s-%s", what, kind->name), name)
	tell_apart(NAMED("unshare"), try_unshare, &kind->flag);
	/* To clone, this bit is part of the signal. */
	if (strcmp(kind->name, "time"))
		tell_apart(NAMED("clone"), try_clone, &kind->flag);
	tell_apart(NAMED("clone3"), try_clone3, &kind->flag);
	tell(NAMED("open-own"), own);
	tell(NAMED("setns-own"), syscall(SYS_setns, own, 0));
	tell(NAMED("owner-of"), ioctl(own, 0xb701));
	tell(NAMED("parent-of"), ioctl(own, 0xb702));
	tell_apart(NAMED("setns-init"), try_setns_to_init, kind);
	tell_apart(NAMED("setns-pidfd"), try_setns_by_pidfd, kind);
#undef NAMED
}

int main(void)
{
	const unsigned long user = 0x10000000, user_and_high_bit = user | HIGH_BIT, none = 0;
	const struct map maps[] = {
		{"/proc/self/uid_map", "0 0 1\n"}, {"/proc/self/uid_map", "10001 0 1\n"},
		{"/proc/self/gid_map", "0 0 1\n"}, {"/proc/self/projid_map", "0 0 1\n"},
		{"/proc/self/setgroups", "allow"}, {"/proc/sys/user/max_user_namespaces", "1000\n"},
	};
	const char *names[] = {"map-root", "map-own", "map-gid", "map-project", "allow-setgroups",
			       "raise-limit"};
	char limit[16] = "";
	int file;

	for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++)
		tell_kind(&KINDS[i]);
	tell_apart("unshare-high-bit", try_unshare, &user_and_high_bit);
	tell_apart("clone-high-bit", try_clone, &user_and_high_bit);
	tell_apart("clone-nothing-new", try_clone, &none);
	tell_apart("clone3-nothing-new", try_clone3, &none);
	tell_apart("clone3-no-size", try_clone3_of_no_size, &user);
	for (size_t i = 0; i < sizeof(maps) / sizeof(*maps); i++)
		tell_apart(names[i], try_map, &maps[i]);
	file = open("/proc/sys/user/max_user_namespaces", O_RDONLY);
	say("limit", file != -1 && read(file, limit, sizeof(limit) - 1) > 0 ? strtok(limit, "\n") : "unreadable");
	return 0;
}
