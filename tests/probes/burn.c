/* Spins in as many `processes` or `threads` (argument 1) as argument 2 says, deaf to SIGXCPU,
   after telling the CPU limit and trying to raise it. For 15 seconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *spin(void *nothing) {
    for (;;) {
    }
    return nothing;
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    alarm(15);
    signal(SIGXCPU, SIG_IGN);
    struct rlimit limit;
    getrlimit(RLIMIT_CPU, &limit);
    printf("limit %lu\n", (unsigned long)limit.rlim_cur);
    printf("hard %lu\n", (unsigned long)limit.rlim_max);
    limit.rlim_max += 10;
    printf("raise %s\n", setrlimit(RLIMIT_CPU, &limit) == 0 ? "0" : strerrorname_np(errno));
    printf("cpus %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    fflush(stdout);
    int processes = strcmp(arguments[1], "processes") == 0;
    for (int left = atoi(arguments[2]); left > 0; left--) {
        pthread_t thread;
        if (!processes) {
            pthread_create(&thread, NULL, spin, NULL);
        } else if (fork() == 0) {
            alarm(15);
            spin(NULL);
        }
    }
    for (;;)
        pause();
}
