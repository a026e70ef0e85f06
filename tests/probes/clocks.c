/* Tries every way to set a clock, to its current time, or to get a private clock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#define NEWUSER 0x10000000

static void tell(const char *name, long result) {
    printf("%s %s\n", name, result >= 0 ? "done" : strerrorname_np(errno));
    fflush(stdout);
}

/* In a child, so that a success affects only the child. */
static void try_unshare(const char *name, long flags) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tell(name, syscall(SYS_unshare, flags));
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void try_clone3(void) {
    uint64_t arguments[11] = {CLONE_NEWTIME | NEWUSER, 0, 0, 0, 17};
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    tell("clone3", child);
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
}

static void try_write(const char *name, const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    tell(name, file < 0 ? -1 : write(file, text, strlen(text)));
    if (file >= 0)
        close(file);
}

int main(void) {
    struct timespec now;
    struct timeval today;
    timer_t timer;
    tell("clock_gettime", syscall(SYS_clock_gettime, CLOCK_REALTIME, &now));
    tell("timer", syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &timer));
    tell("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, &now));
    gettimeofday(&today, NULL);
    tell("settimeofday", syscall(SYS_settimeofday, &today, NULL));
    struct timex offset = {.modes = ADJ_SETOFFSET};
    tell("adjtimex", syscall(SYS_adjtimex, &offset));
    tell("clock_adjtime", syscall(SYS_clock_adjtime, CLOCK_REALTIME, &offset));
    tell("alarm_timer", syscall(SYS_timer_create, CLOCK_REALTIME_ALARM, NULL, &timer));
    try_unshare("unshare", CLONE_NEWTIME);
    try_unshare("unshare_user", NEWUSER | CLONE_NEWTIME);
    try_clone3();
    try_write("offsets", "/proc/self/timens_offsets", "monotonic 1000 0\n");
    tell("rtc", open("/dev/rtc0", O_RDONLY | O_CLOEXEC));
    tell("ptp", open("/dev/ptp0", O_RDWR | O_CLOEXEC));
    return 0;
}
