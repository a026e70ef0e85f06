/* Threads (`threads`), threads of many processes (`spread`) or programs that start themselves
   (`exec`): at most 2000, for 15 seconds. Tells how many there were at once. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STARTS_MAX = 2000, PROCESSES = 16 };

struct shared {
    atomic_int started;
    atomic_int refused;
};

static struct shared *shared;

static void *stay(void *nothing) {
    for (;;)
        pause();
    return nothing;
}

static void start_threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
    while (atomic_fetch_add(&shared->started, 1) < STARTS_MAX) {
        pthread_t thread;
        int error = pthread_create(&thread, &attributes, stay, NULL);
        if (error != 0) {
            atomic_store(&shared->refused, error);
            atomic_fetch_sub(&shared->started, 1);
            return;
        }
    }
}

/* Every program starts two of its kind; the counter is a file, since memory does not outlive an exec. */
static void start_programs(char **arguments) {
    while (atomic_fetch_add(&shared->started, 1) < STARTS_MAX) {
        pid_t child = fork();
        if (child == 0) {
            char *again[] = {arguments[0], "again", NULL};
            execv(arguments[0], again);
            _exit(1);
        }
        if (child < 0) {
            atomic_store(&shared->refused, errno);
            atomic_fetch_sub(&shared->started, 1);
            return;
        }
    }
}

static void go_on(char **arguments) {
    alarm(15);
    if (strcmp(arguments[1], "exec") == 0 || strcmp(arguments[1], "again") == 0)
        start_programs(arguments);
    else
        start_threads();
    for (;;)
        pause();
}

int main(int count, char **arguments) {
    int file = open("/tmp/counter", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (count < 2 || file < 0 || ftruncate(file, sizeof *shared) != 0)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED)
        return 2;
    if (strcmp(arguments[1], "again") == 0)
        go_on(arguments);
    int processes = strcmp(arguments[1], "spread") == 0 ? PROCESSES : 1;
    for (int process = 0; process < processes; process++)
        if (fork() == 0)
            go_on(arguments);
    int before = -1, started = 0;
    /* Until the count has not grown for 200 ms. */
    for (int waited = 0, still = 0; still < 20 && waited < 500; waited++) {
        usleep(10000);
        started = atomic_load(&shared->started);
        still = started == before && started > 0 ? still + 1 : 0;
        before = started;
    }
    int refused = atomic_load(&shared->refused);
    printf("started %d\n", started < STARTS_MAX ? started : STARTS_MAX);
    printf("refused %s\n", refused ? strerrorname_np(refused) : "never");
    return 0;
}
