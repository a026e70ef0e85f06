/* Every process forks for as long as it can and stays: at most 2000 of them, for 15 seconds.
   Tells how many there were at once, then holds them for as many milliseconds as argument 1 says. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FORKS_MAX = 2000 };

struct shared {
    atomic_int forks;
    atomic_int refused;
};

static void fork_on(struct shared *shared) {
    alarm(15);
    while (atomic_fetch_add(&shared->forks, 1) < FORKS_MAX) {
        pid_t child = fork();
        if (child == 0) {
            alarm(15);
        } else if (child < 0) {
            atomic_store(&shared->refused, errno);
            atomic_fetch_sub(&shared->forks, 1);
            break;
        }
    }
    for (;;)
        pause();
}

int main(int count, char **arguments) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || count < 2)
        return 2;
    if (fork() == 0)
        fork_on(shared);
    int before = -1, forks = 0;
    /* Until the count has not grown for 200 ms. */
    for (int waited = 0, still = 0; still < 20 && waited < 500; waited++) {
        usleep(10000);
        forks = atomic_load(&shared->forks);
        still = forks == before && forks > 0 ? still + 1 : 0;
        before = forks;
    }
    int refused = atomic_load(&shared->refused);
    printf("forked %d\n", forks < FORKS_MAX ? forks : FORKS_MAX);
    printf("refused %s\n", refused ? strerrorname_np(refused) : "never");
    fflush(stdout);
    usleep(1000 * (useconds_t)atoi(arguments[1]));
    return 0;
}
