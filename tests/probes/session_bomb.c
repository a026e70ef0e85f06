/* Multiplies through new sessions, each process leaving for its children: argument 1 says whether
   the first one stays (`stay`) or ends (`leave`). At most 2000 processes, for 15 seconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FORKS_MAX = 2000, ENOUGH = 1000 };

struct shared {
    atomic_int forks;
    atomic_int refused;
};

static void multiply(struct shared *shared) {
    for (;;) {
        alarm(15);
        if (atomic_load(&shared->forks) >= FORKS_MAX)
            pause();
        pid_t child = fork();
        if (child < 0) {
            /* Half of them exit, so that others can fork. */
            if (atomic_fetch_add(&shared->refused, 1) % 2 == 0)
                _exit(0);
            usleep(5000);
        } else if (child == 0) {
            atomic_fetch_add(&shared->forks, 1);
            setsid();
        } else if (atomic_load(&shared->forks) % 4 == 0) {
            _exit(0);
        }
    }
}

int main(int count, char **arguments) {
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || count < 2)
        return 2;
    if (fork() == 0) {
        setsid();
        multiply(shared);
    }
    for (int waited = 0; atomic_load(&shared->forks) < ENOUGH && waited < 1000; waited++)
        usleep(1000);
    printf("forks %d\n", atomic_load(&shared->forks));
    printf("refused %d\n", atomic_load(&shared->refused));
    fflush(stdout);
    if (strcmp(arguments[1], "stay") == 0) {
        alarm(15);
        pause();
    }
    return 0;
}
