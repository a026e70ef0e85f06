/* Tries to get more than its share of the processors. */
#include "attempt.h"
#include <sched.h>
#include <sys/resource.h>

/* The first version of struct sched_attr. */
struct attr {
	unsigned size, policy;
	unsigned long long flags;
	int nice;
	unsigned priority;
	unsigned long long runtime, deadline, period;
};

static long set_attr(unsigned policy, int nice, unsigned priority)
{
	struct attr attr = {48, policy, 0, nice, priority, 1000000, 10000000, 10000000};

	return syscall(SYS_sched_setattr, 0, &attr, 0);
}

static long set_scheduler(int policy, int priority)
{
	const struct sched_param param = {.sched_priority = priority};

	return syscall(SYS_sched_setscheduler, 0, policy, &param);
}

static void tell_limits(void)
{
	const struct rlimit all = {40, 40}, priority = {99, 99};
	struct rlimit limit;

	tell("raise-limit-nice", setrlimit(RLIMIT_NICE, &all));
	tell("raise-limit-rtprio", setrlimit(RLIMIT_RTPRIO, &priority));
	getrlimit(RLIMIT_NICE, &limit);
	say("limit-nice", limit.rlim_max ? "some" : "none");
	getrlimit(RLIMIT_RTPRIO, &limit);
	say("limit-rtprio", limit.rlim_max ? "some" : "none");
}

static void tell_affinity(void)
{
	cpu_set_t before, after, every, beyond;

	CPU_ZERO(&beyond);
	CPU_SET(CPU_SETSIZE - 1, &beyond);
	memset(&every, 0xff, sizeof(every));
	sched_getaffinity(0, sizeof(before), &before);
	tell("affinity-beyond", sched_setaffinity(0, sizeof(beyond), &beyond));
	/* The kernel uses the CPUs that exist. */
	sched_setaffinity(0, sizeof(every), &every);
	sched_getaffinity(0, sizeof(after), &after);
	say("affinity", CPU_EQUAL(&before, &after) ? "same" : "more");
	tell("affinity-init", sched_setaffinity(1, sizeof(before), &before));
}

int main(void)
{
	tell("nice-at-start", getpriority(PRIO_PROCESS, 0) == 0 ? 0 : (errno = ERANGE, -1));
	say("policy-at-start", sched_getscheduler(0) == SCHED_OTHER ? "other" : "changed");
	say("ioprio-at-start", syscall(SYS_ioprio_get, 1, 0) >> 13 == 1 ? "real-time" : "other");
	tell_limits();
	tell("nice-process", setpriority(PRIO_PROCESS, 0, -20));
	tell("nice-one", setpriority(PRIO_PROCESS, 0, -1));
	tell("nice-group", setpriority(PRIO_PGRP, 0, -20));
	tell("nice-user", setpriority(PRIO_USER, 0, -20));
	tell("nice-attr", set_attr(SCHED_OTHER, -20, 0));
	tell("fifo", set_scheduler(SCHED_FIFO, 1));
	tell("rr", set_scheduler(SCHED_RR, 99));
	tell("fifo-reset", set_scheduler(SCHED_FIFO | 0x40000000, 1));
	tell("fifo-attr", set_attr(SCHED_FIFO, 0, 1));
	tell("deadline", set_attr(6, 0, 0));
	/* The real-time class, for this process, its group and its user. */
	tell("ioprio-process", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
	tell("ioprio-group", syscall(SYS_ioprio_set, 2, 0, 1 << 13));
	tell("ioprio-user", syscall(SYS_ioprio_set, 3, getuid(), 1 << 13));
	tell("ioprio-init", syscall(SYS_ioprio_set, 1, 1, 3 << 13));
	tell("nice-init", setpriority(PRIO_PROCESS, 1, 19));
	tell_affinity();
	/* Every process may lower its priority: the calls themselves work. */
	tell("batch", set_scheduler(SCHED_BATCH, 0));
	tell("nicer", setpriority(PRIO_PROCESS, 0, 5));
	tell("nice-back", setpriority(PRIO_PROCESS, 0, 0));
	return 0;
}
