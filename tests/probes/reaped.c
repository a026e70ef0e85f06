/* Spends CPU time where nobody's children are waited for, and tells how much: two that work for
   long, and a storm of short ones, all reaped by the kernel under a subreaper. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 2, LONG_MS = 300, SHORT = 200, SHORT_MS = 2 };

static long own_cpu_us(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1000000 + used.tv_nsec / 1000;
}

static void work(atomic_long *spent, long ms) {
    while (own_cpu_us() < ms * 1000) {
    }
    atomic_fetch_add(spent, own_cpu_us());
    _exit(0);
}

int main(void) {
    atomic_long *spent =
        mmap(NULL, sizeof *spent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (spent == MAP_FAILED)
        return 2;
    printf("subreaper %d\n", prctl(PR_SET_CHILD_SUBREAPER, 1));
    /* Then their CPU times are added to no parent. */
    signal(SIGCHLD, SIG_IGN);
    for (int started = 0; started < LONG; started++)
        /* Orphaned at once. */
        if (fork() == 0) {
            if (fork() == 0)
                work(spent, LONG_MS);
            _exit(0);
        }
    for (int started = 0; started < SHORT;) {
        pid_t child = fork();
        if (child == 0)
            work(spent, SHORT_MS);
        if (child > 0)
            started++;
        else
            usleep(1000);
    }
    const long wanted = (LONG * LONG_MS + SHORT * SHORT_MS) * 1000L;
    for (int waited = 0; atomic_load(spent) < wanted && waited < 12000; waited++)
        usleep(1000);
    /* The last one may still be exiting. */
    usleep(20000);
    printf("wanted_ms %ld\n", wanted / 1000);
    printf("spent_ms %ld\n", atomic_load(spent) / 1000);
    return 0;
}
