/* Sends signals to every process that has a number, in every way there is, and tells how many
   numbers were those of somebody else. `kill` as argument 1 sends the deadly one to all as well. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PIDS = 65536, WAYS = 5, HARMLESS = SIGURG };

static const char *const names[WAYS] = {"kill", "tkill", "tgkill", "sigqueue", "pidfd"};

static long send(int way, int pid, int signal_number) {
    siginfo_t info = {.si_code = SI_QUEUE};
    switch (way) {
    case 0:
        return syscall(SYS_kill, pid, signal_number);
    case 1:
        return syscall(SYS_tkill, pid, signal_number);
    case 2:
        return syscall(SYS_tgkill, pid, pid, signal_number);
    case 3:
        return syscall(SYS_rt_sigqueueinfo, pid, signal_number, &info);
    default: {
        long pidfd = syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0)
            return -1;
        long result = syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
        int error = errno;
        close((int)pidfd);
        errno = error;
        return result;
    }
    }
}

int main(int count, char **arguments) {
    int deadly = count > 1 && strcmp(arguments[1], "kill") == 0;
    signal(HARMLESS, SIG_IGN);
    for (int way = 0; way < WAYS; way++) {
        int others = 0;
        for (int pid = 1; pid < PIDS; pid++) {
            if (pid == getpid())
                continue;
            if (send(way, pid, HARMLESS) == 0 || errno != ESRCH)
                others++;
            if (deadly)
                send(way, pid, SIGKILL);
        }
        printf("%s %d\n", names[way], others);
    }
    /* The first of these spares the caller itself. */
    printf("self %s\n", kill(getpid(), HARMLESS) == 0 ? "0" : strerrorname_np(errno));
    fflush(stdout);
    kill(-1, HARMLESS);
    if (deadly) {
        kill(-1, SIGSTOP);
        kill(-1, SIGCONT);
        kill(-1, SIGKILL);
        kill(0, SIGKILL);
    }
    return 0;
}
