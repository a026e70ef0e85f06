/* Tries to inject input into a terminal, and to get one. */
#include "attempt.h"
#include <fcntl.h>
#include <sys/ioctl.h>

#define HIGH_BIT (1UL << 32)

static const struct {
	const char *name;
	unsigned long command;
} COMMANDS[] = {
	{"TIOCSTI", 0x5412}, {"TIOCLINUX", 0x541c},
	{"TIOCSTI-high-bit", 0x5412 | HIGH_BIT}, {"TIOCLINUX-high-bit", 0x541c | HIGH_BIT},
	{"TIOCSTI-all-high-bits", 0x5412 | ~0UL << 32}, {"TIOCLINUX-all-high-bits", 0x541c | ~0UL << 32},
};

static const char *TERMINALS[] = {
	"/dev/tty", "/dev/console", "/dev/ptmx", "/dev/pts/ptmx", "/dev/pts/0", "/dev/tty0",
	"/dev/tty1", "/dev/ttyS0", "/dev/vcs", "/dev/hvc0", NULL,
};

static void tell_commands(const char *what, int file)
{
	/* For TIOCLINUX this is the request to paste. */
	char character = 3, name[64];

	for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
		snprintf(name, sizeof(name), "%s-%s", COMMANDS[i].name, what);
		tell(name, syscall(SYS_ioctl, file, COMMANDS[i].command, &character));
	}
	snprintf(name, sizeof(name), "TIOCSCTTY-%s", what);
	tell(name, ioctl(file, TIOCSCTTY, 1));
}

static void tell_session(void)
{
	char text[512] = "", *field;
	int file = open("/proc/self/stat", O_RDONLY), terminal = -1;

	/* After the name: state, parent, group, session, terminal. */
	if (read(file, text, sizeof(text) - 1) > 0 && (field = strrchr(text, ')')))
		sscanf(field, ") %*c %*d %*d %*d %d", &terminal);
	say("terminal", terminal == 0 ? "none" : "some");
	/* The id of a leader outside the PID namespace reads as 0. */
	say("session", getsid(0) > 0 ? "own" : "foreign");
	say("stdin", isatty(0) ? "terminal" : "other");
}

int main(void)
{
	int pipes[2], waiting = -1;

	if (pipe(pipes) || write(pipes[1], "x", 1) != 1)
		return 1;
	tell_commands("stdin", 0);
	tell_commands("stdout", 1);
	tell_commands("pipe", pipes[0]);
	tell_commands("nothing", -1);
	tell("FIONREAD", ioctl(pipes[0], FIONREAD, &waiting));
	for (const char **path = TERMINALS; *path; path++)
		tell(*path, open(*path, O_RDWR));
	tell_session();
	return 0;
}
