/* Creates as many of every kernel object as possible. Each line: the count, and the refusal of the next. */
#include "attempts.h"
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Above every limit here, in case one is missing. */
#define MOST 200000
/* The descriptors below stay open. */
#define FIRST_OWN 3

static long open_one(long number) { (void)number; return open("/dev/null", O_RDONLY); }
static long duplicate_far(long number) { return fcntl(0, F_DUPFD, number ? 100000 : 1000); }
static long event(long number) { (void)number; return eventfd(0, 0); }
static long timer_descriptor(long number) { (void)number; return timerfd_create(CLOCK_MONOTONIC, 0); }
static long epoll(long number) { (void)number; return epoll_create1(0); }
static long watcher(long number) { (void)number; return inotify_init1(0); }
static long semaphores(long number) { (void)number; return semget(IPC_PRIVATE, 1, IPC_CREAT | 0600); }
static long shared(long number) { (void)number; return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); }
static long messages(long number) { (void)number; return msgget(IPC_PRIVATE, IPC_CREAT | 0600); }

static long raise_limit(long number)
{
	struct rlimit more = {1 << 20, 1 << 20};
	(void)number;
	return setrlimit(RLIMIT_NOFILE, &more);
}

/* Nested: the kernel walks all of them. */
static long nested_epoll(long number)
{
	static int outer = -1;
	struct epoll_event event = {.events = EPOLLIN};
	int inner = outer;
	outer = epoll_create1(0);
	return number == 0 ? outer : epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
}

static long watch(long number)
{
	static int fd = -1;
	char path[64];
	if (number == 0)
		fd = inotify_init1(0);
	snprintf(path, sizeof path, "/tmp/watched%ld", number);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	return inotify_add_watch(fd, path, IN_ALL_EVENTS);
}

static long posix_timer(long number)
{
	timer_t timer;
	struct sigevent none = {.sigev_notify = SIGEV_NONE};
	(void)number;
	return timer_create(CLOCK_MONOTONIC, &none, &timer);
}

static long queued_signal(long number)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = (int)number});
}

static long posix_queue(long number)
{
	char name[32];
	snprintf(name, sizeof name, "/q%ld", number);
	int fd = mq_open(name, O_CREAT | O_RDWR, 0600, NULL);
	if (fd >= 0)
		close(fd);
	return fd;
}

/* Descriptors that no process has open: in flight in an unread socket. */
static long in_flight(long number)
{
	static int ends[2];
	char control[CMSG_SPACE(100 * sizeof(int))] = {0}, byte = 0;
	struct iovec one = {&byte, 1};
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (number % 10 == 0)
		socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(100 * sizeof(int));
	for (int fd = 0; fd < 100; fd++)
		((int *)CMSG_DATA(header))[fd] = ends[fd % 2];
	return sendmsg(ends[0], &message, MSG_DONTWAIT);
}

static const struct {
	const char *name;
	long (*take)(long);
} ways[] = {
	{"open", open_one}, {"far", duplicate_far}, {"raise", raise_limit}, {"event", event},
	{"timerfd", timer_descriptor}, {"epoll", epoll}, {"nested", nested_epoll}, {"inotify", watcher},
	{"watch", watch}, {"timer", posix_timer}, {"signal", queued_signal}, {"queue", posix_queue},
	{"semaphore", semaphores}, {"shm", shared}, {"message", messages}, {"in_flight", in_flight},
};

int main(void)
{
	for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
		if (fork() == 0) {
			long taken = 0;
			alarm(12);
			errno = 0;
			while (taken < MOST && ways[way].take(taken) >= 0)
				taken++;
			printf("%s %ld %s\n", ways[way].name, taken, taken < MOST ? strerrorname_np(errno) : "unlimited");
			fflush(stdout);
			_exit(0);
		}
		wait(NULL);
	}
	return 0;
}
