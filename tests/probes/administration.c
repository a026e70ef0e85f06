/* Makes every call that a host's administrator or an exploit would, in the process itself, which
 * must still work after each. The arguments are harmless if a call succeeds. */
#include "attempt.h"
#include <fcntl.h>
#include <pthread.h>

static void *nothing(void *context)
{
	return context;
}

/* Threads, processes and memory, which every runtime needs. */
static int is_well(void)
{
	char *memory = malloc(1 << 20);
	pthread_t thread;
	pid_t child;

	if (!memory || pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		return 0;
	memset(memory, 1, 1 << 20);
	free(memory);
	child = fork();
	if (child == 0)
		_exit(0);
	return child > 0 && waitpid(child, NULL, 0) == child;
}

static void call(const char *name, long number, long a, long b, long c, long d, long e)
{
	tell(name, syscall(number, a, b, c, d, e, 0));
	if (!is_well()) {
		say("ill-after", name);
		exit(0);
	}
}

static void host(void)
{
	long name = (long)"x", nowhere = (long)"/tmp/nowhere";

	call("init_module", SYS_init_module, (long)"", 0, name, 0, 0);
	call("finit_module", SYS_finit_module, -1, name, 0, 0, 0);
	call("delete_module", SYS_delete_module, name, O_NONBLOCK, 0, 0, 0);
	call("kexec_load", SYS_kexec_load, 0, 0, 0, 0, 0);
	call("kexec_file_load", SYS_kexec_file_load, -1, -1, 0, 0, 0);
	call("acct", SYS_acct, nowhere, 0, 0, 0, 0);
	call("swapon", SYS_swapon, nowhere, 0, 0, 0, 0);
	call("swapoff", SYS_swapoff, nowhere, 0, 0, 0, 0);
	/* Not the magic number: even root would only get an error. */
	call("reboot", SYS_reboot, 1, 2, 3, 0, 0);
	call("quotactl", SYS_quotactl, 0x80000700, nowhere, 0, 0, 0);
	call("quotactl_fd", 443, -1, 0x80000700, 0, 0, 0);
	call("syslog", SYS_syslog, 10, 0, 0, 0, 0);
	call("vhangup", SYS_vhangup, 0, 0, 0, 0, 0);
	call("sethostname", SYS_sethostname, name, 1, 0, 0, 0);
	call("setdomainname", SYS_setdomainname, name, 1, 0, 0, 0);
	call("settimeofday", SYS_settimeofday, 0, 0, 0, 0, 0);
	call("clock_settime", SYS_clock_settime, CLOCK_REALTIME, 0, 0, 0, 0);
#ifdef __x86_64__
	call("iopl", SYS_iopl, 3, 0, 0, 0, 0);
	call("ioperm", SYS_ioperm, 0x80, 1, 1, 0, 0);
	call("modify_ldt", SYS_modify_ldt, 0, 0, 0, 0, 0);
	call("uselib", SYS_uselib, nowhere, 0, 0, 0, 0);
	call("_sysctl", 156, 0, 0, 0, 0, 0);
	call("lookup_dcookie", 212, 0, 0, 0, 0, 0);
#else
	call("lookup_dcookie", 18, 0, 0, 0, 0, 0);
#endif
}

static void kernel(void)
{
	/* A hash map of one entry; a software clock of this process; rings of one entry. */
	unsigned map[18] = {1, 4, 4, 1}, event[32] = {1, 128}, ring[30] = {0};
	unsigned handle[8] = {8, 1, 2, 0};
	long root = open("/", O_RDONLY | O_DIRECTORY);
	int mount;

	call("bpf-map", SYS_bpf, 0, (long)map, sizeof(map), 0, 0);
	call("bpf-load", SYS_bpf, 5, (long)map, sizeof(map), 0, 0);
	call("bpf-next", SYS_bpf, 12, (long)map, sizeof(map), 0, 0);
	call("perf_event_open", SYS_perf_event_open, (long)event, 0, -1, -1, 0);
	call("userfaultfd", SYS_userfaultfd, O_CLOEXEC, 0, 0, 0, 0);
	call("userfaultfd-user-mode", SYS_userfaultfd, O_CLOEXEC | 1, 0, 0, 0, 0);
	call("io_uring_setup", 425, 1, (long)ring, 0, 0, 0);
	call("io_uring_enter", 426, -1, 1, 1, 0, 0);
	call("io_uring_register", 427, -1, 0, 0, 0, 0);
	call("add_key", SYS_add_key, (long)"user", (long)"x", (long)"x", 1, -2);
	call("request_key", SYS_request_key, (long)"user", (long)"x", 0, -2, 0);
	call("keyctl", SYS_keyctl, 0, -3, 1, 0, 0);
	call("name_to_handle_at", SYS_name_to_handle_at, AT_FDCWD, (long)"/", (long)handle, (long)&mount, 0);
	/* Inode 2, which on most disks is the root of everything. */
	handle[0] = 8, handle[1] = 1, handle[2] = 2, handle[3] = 0;
	call("open_by_handle_at", SYS_open_by_handle_at, root, (long)handle, O_RDONLY, 0, 0);
}

int main(void)
{
	say("well-before", is_well() ? "yes" : "no");
	/* Allowed everywhere: shows the answer to a permitted call. */
	call("getpid", SYS_getpid, 0, 0, 0, 0, 0);
	host();
	kernel();
	say("well-after", is_well() ? "yes" : "no");
	return 0;
}
