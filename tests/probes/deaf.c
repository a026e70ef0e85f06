/* Ignores and blocks every signal it can, leaves its session, tries to kill the init, and stays. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void tell(const char *name, int result) {
    printf("%s %s\n", name, result == 0 ? "0" : strerrorname_np(errno));
    fflush(stdout);
}

int main(void) {
    sigset_t all;
    sigfillset(&all);
    tell("block", sigprocmask(SIG_BLOCK, &all, NULL));
    int ignored = 0;
    for (int signal_number = 1; signal_number <= SIGRTMAX; signal_number++)
        ignored += signal(signal_number, SIG_IGN) != SIG_ERR;
    printf("ignored %d\n", ignored);
    tell("no_death_signal", prctl(PR_SET_PDEATHSIG, 0));
    if (getpid() != getsid(0) && getpid() != getpgrp())
        setsid();
    /* The init of the sandbox ignores them; that of the host must not get them. */
    printf("init %s\n", kill(1, SIGSTOP) == 0 && kill(1, SIGKILL) == 0 ? "signalled" : "refused");
    fflush(stdout);
    alarm(15);
    for (;;) {
    }
}
