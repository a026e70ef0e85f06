/* The output of native probes: a line per attempt with its name and its result. */
#ifndef ATTEMPTS_H
#define ATTEMPTS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* "name done", or "name EPERM". */
static inline void attempt(const char *name, long result)
{
	printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "done");
	fflush(stdout);
	errno = 0;
}

/* "name 7" */
static inline void count(const char *name, long number)
{
	printf("%s %ld\n", name, number);
	fflush(stdout);
}
#endif
