/* Puts itself and its children into every kind of stop, and stops every process it can. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *name, long result) {
    printf("%s %s\n", name, result == 0 ? "0" : strerrorname_np(errno));
    fflush(stdout);
}

static void stop_in_session(void) {
    setsid();
    raise(SIGSTOP);
}

/* Its parent waits for it uninterruptibly. */
static void stop_in_vfork(void) {
    if (vfork() == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
}

static void stop_traced(void) {
    tell("traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
    raise(SIGSTOP);
}

static void wait_for_nothing(void) {}

static pid_t start(void (*stop)(void)) {
    pid_t child = fork();
    if (child == 0) {
        alarm(15);
        stop();
        pause();
        _exit(0);
    }
    return child;
}

int main(void) {
    static void (*const stops[])(void) = {stop_in_session, stop_in_vfork, stop_traced};
    int stopped = 0;
    for (unsigned i = 0; i < sizeof stops / sizeof *stops; i++) {
        pid_t child = start(stops[i]);
        int status = 0;
        if (stops[i] == stop_in_vfork)
            usleep(100000);
        else if (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status))
            stopped++;
    }
    printf("stopped %d\n", stopped);
    pid_t waiting = start(wait_for_nothing);
    tell("seize", ptrace(PTRACE_SEIZE, waiting, 0, 0));
    tell("interrupt", ptrace(PTRACE_INTERRUPT, waiting, 0, 0));
    alarm(15);
    kill(-1, SIGSTOP);
    raise(SIGSTOP);
    pause();
}
