/* Commands of ioctl, prctl, fcntl and madvise that reach beyond a sandbox, one line each. */
#include "attempt.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static char buffer[4096];

static const struct {
	const char *name;
	unsigned long command;
} FILES[] = {
	{"uuid", 0x80111500}, {"sysfs-path", 0x80811501},
	{"add-key", 0xc0506617}, {"remove-key", 0xc0406618}, {"key-status", 0xc080661a},
	{"set-policy", 0x800c6613}, {"get-policy", 0xc0096616}, {"enable-verity", 0x40806685},
	{"get-flags", 0x80086601}, {"set-flags", 0x40086602}, {"get-attributes", 0x801c581f},
	{"extents", 0xc020660b}, {"clone", 0x40049409}, {"freeze", 0xc0045877}, {"trim", 0xc0185879},
}, SOCKETS[] = {
	{"get-vlan", 0x8982}, {"set-vlan", 0x8983}, {"get-bridge", 0x8940}, {"add-bridge", 0x89a0},
	{"set-owner", 0x8902}, {"set-flags-of-lo", 0x8914}, {"add-multicast", 0x8931},
	{"ethtool", 0x8946}, {"open-unix-file", 0x89e0}, {"private", 0x89f0},
};

static void tell_files(const char *what, const char *path)
{
	int file = open(path, O_RDONLY);
	char name[64];

	for (size_t i = 0; i < sizeof(FILES) / sizeof(*FILES); i++) {
		snprintf(name, sizeof(name), "%s-%s", what, FILES[i].name);
		/* An invalid key address: the error shows whether a key would have been added. */
		void *at = strstr(FILES[i].name, "key") ? NULL : buffer;
		tell(name, syscall(SYS_ioctl, file, FILES[i].command, at));
	}
	close(file);
}

static void tell_process(void)
{
	int own = syscall(SYS_pidfd_open, getpid(), 0);
	unsigned *information = (unsigned *)buffer;

	/* PIDFD_INFO_CGROUPID, and the size of its first version. */
	memset(buffer, 0, sizeof(buffer));
	information[0] = 4;
	tell("pidfd-information", syscall(SYS_ioctl, own, 0xc040ff0b, buffer));
	tell("pidfd-namespace", syscall(SYS_ioctl, own, 0xff04, 0));
	tell("merge-memory", prctl(67, 1, 0, 0, 0));
	tell("merge-memory-high-bit", syscall(SYS_prctl, 67 | 1UL << 32, 1, 0, 0, 0));
	tell("merged-memory", syscall(SYS_prctl, 68, 0, 0, 0, 0));
	tell("share-core", syscall(SYS_prctl, 62, 0, 0, 0, 0));
	tell("dispatch", syscall(SYS_prctl, 59, 0, 0, 0, 0));
	tell("restore-timers", syscall(SYS_prctl, 77, 1, 0, 0, 0));
	tell("mergeable", madvise(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, 12));
}

static void tell_allowed(void)
{
	int pipes[2], waiting, sockets = socket(AF_INET, SOCK_STREAM, 0);

	if (pipe(pipes))
		return;
	memset(buffer, 0, sizeof(buffer));
	strcpy(buffer, "lo");
	tell("allowed-FIONREAD", ioctl(pipes[0], FIONREAD, &waiting));
	tell("allowed-FIOCLEX", ioctl(pipes[0], FIOCLEX));
	tell("allowed-SIOCGIFADDR", ioctl(sockets, 0x8915, buffer));
	tell("allowed-F_SETPIPE_SZ", fcntl(pipes[1], F_SETPIPE_SZ, 8192));
	tell("allowed-F_GETFL", fcntl(pipes[1], F_GETFL));
	tell("allowed-PR_SET_NAME", prctl(PR_SET_NAME, "name", 0, 0, 0));
	tell("allowed-MADV_FREE", madvise(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096, MADV_FREE));
}

int main(void)
{
	int sockets = socket(AF_INET, SOCK_STREAM, 0);
	char name[64];

	tell_files("root", "/usr");
	tell_files("own", "/workspace");
	for (size_t i = 0; i < sizeof(SOCKETS) / sizeof(*SOCKETS); i++) {
		snprintf(name, sizeof(name), "socket-%s", SOCKETS[i].name);
		tell(name, syscall(SYS_ioctl, sockets, SOCKETS[i].command, buffer));
	}
	tell_process();
	tell_allowed();
	return 0;
}
