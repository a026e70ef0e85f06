/* Kernel memory charged to the run: held KIND. Many processes fill buffers, then the first one
 * reports how many MiB all of them hold. KIND is file, memfd, sysv, passed, pipe, unix, udp, tcp or message. */
#include "attempts.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <linux/sock_diag.h>
#include <unistd.h>

#define MIB (1L << 20)
#define MOST (1536 * MIB)
#define PROCESSES 40
#define PAIRS 100

static _Atomic long *held;
static char block[MIB];

static int room(void) { return *held < MOST; }

static void fill(int fd)
{
	for (long at = 0; room() && at < 48 * MIB && write(fd, block, sizeof block) == (long)sizeof block; at += MIB)
		*held += MIB;
}

static int file(int number)
{
	static const char *const places[] = {"/tmp", "/dev/shm", "/workspace", "/var/tmp"};
	char path[64];
	snprintf(path, sizeof path, "%s/held%d", places[number % 4], number);
	fill(open(path, O_CREAT | O_WRONLY, 0600));
	return 0;
}

static int memfd(int number)
{
	fill(memfd_create("held", number % 2 ? MFD_ALLOW_SEALING : 0));
	return 0;
}

static int sysv(int number)
{
	int id = shmget(IPC_PRIVATE, 48 * MIB, IPC_CREAT | (number & 0) | 0600);
	char *at = shmat(id, NULL, 0);
	for (long page = 0; at != (void *)-1 && room() && page < 48 * MIB; page += 4096, *held += 4096)
		at[page] = 1;
	shmdt(at);
	return 0;
}

/* An unnamed file that no process has open: in flight in a socket that is itself in flight. */
static int passed(int number)
{
	int ends[2], file = memfd_create("passed", 0), sent[2] = {file, 0};
	char control[CMSG_SPACE(sizeof sent)] = {0}, byte = 0;
	struct iovec one = {&byte, 1};
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	(void)number;
	fill(file);
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends))
		return 1;
	sent[1] = ends[1];
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof sent);
	memcpy(CMSG_DATA(header), sent, sizeof sent);
	if (sendmsg(ends[0], &message, 0) < 0)
		return 1;
	close(file);
	close(ends[0]);
	close(ends[1]);
	return 0;
}

static int pipes(int number)
{
	int ends[2];
	(void)number;
	for (int pair = 0; room() && pair < PAIRS && pipe2(ends, O_NONBLOCK) == 0; pair++) {
		fcntl(ends[1], F_SETPIPE_SZ, MIB);
		for (ssize_t bytes; (bytes = write(ends[1], block, 65536)) > 0;)
			*held += bytes;
	}
	return 0;
}

/* The memory of a socket as the kernel reports it, including overhead. */
static void add_memory_of(int fd)
{
	unsigned figures[SK_MEMINFO_VARS] = {0};
	socklen_t length = sizeof figures;
	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, figures, &length) == 0)
		*held += figures[SK_MEMINFO_RMEM_ALLOC] + figures[SK_MEMINFO_WMEM_ALLOC] + figures[SK_MEMINFO_WMEM_QUEUED];
}

static void widen(int fd)
{
	int most = 1 << 30;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
}

static void send_all(int from, int to)
{
	widen(from);
	widen(to);
	for (int turn = 0; turn < 200 && send(from, block, 60000, MSG_DONTWAIT) > 0; turn++)
		;
	add_memory_of(from);
	add_memory_of(to);
}

static int unix_sockets(int number)
{
	int ends[2];
	for (int pair = 0; room() && pair < PAIRS; pair++)
		if (socketpair(AF_UNIX, number % 2 ? SOCK_STREAM : SOCK_DGRAM, 0, ends) == 0)
			send_all(ends[0], ends[1]);
	return 0;
}

static int loopback(int type, int *ends)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int bound = socket(AF_INET, type, 0);
	ends[0] = socket(AF_INET, type, 0);
	if (bind(bound, (void *)&address, length) || getsockname(bound, (void *)&address, &length))
		return -1;
	if (type == SOCK_STREAM)
		listen(bound, 1);
	if (connect(ends[0], (void *)&address, length))
		return -1;
	ends[1] = type == SOCK_STREAM ? accept(bound, NULL, NULL) : bound;
	if (type == SOCK_STREAM)
		close(bound);
	return ends[1];
}

static int internet(int type)
{
	int ends[2];
	for (int pair = 0; room() && pair < PAIRS && loopback(type, ends) >= 0; pair++)
		send_all(ends[0], ends[1]);
	return 0;
}

static int udp(int number) { return internet(SOCK_DGRAM | (number & 0)); }
static int tcp(int number) { return internet(SOCK_STREAM | (number & 0)); }

static int message(int number)
{
	struct { long type; char text[8000]; } text = {1, {0}};
	(void)number;
	for (int queue = 0; room() && queue < 800; queue++) {
		int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);
		while (id >= 0 && msgsnd(id, &text, sizeof text.text, IPC_NOWAIT) == 0)
			*held += sizeof text.text;
	}
	return 0;
}

static const struct {
	const char *name;
	int (*hold)(int);
} kinds[] = {
	{"file", file}, {"memfd", memfd}, {"sysv", sysv}, {"passed", passed}, {"pipe", pipes},
	{"unix", unix_sockets}, {"udp", udp}, {"tcp", tcp}, {"message", message},
};

int main(int argc, char **argv)
{
	int ready[2], done[2];
	char byte;
	held = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc != 2 || pipe(ready) || pipe(done))
		return 2;
	memset(block, 1, sizeof block);
	signal(SIGXFSZ, SIG_IGN);
	for (int number = 0; number < PROCESSES; number++)
		if (fork() == 0) {
			close(ready[0]);
			close(done[1]);
			alarm(12);
			for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
				if (strcmp(argv[1], kinds[kind].name) == 0)
					kinds[kind].hold(number);
			/* Full, and kept so until all are full. */
			close(ready[1]);
			_exit(read(done[0], &byte, 1) != 0);
		}
	close(ready[1]);
	close(done[0]);
	if (read(ready[0], &byte, 1) != 0)
		return 2;
	count(argv[1], *held / MIB);
	close(done[1]);
	while (wait(NULL) > 0)
		;
	return 0;
}
