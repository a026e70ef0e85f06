/* Puts a secret into every keyring it can reach and looks for it there.
 * Arguments: "leave" or "look", then for how many milliseconds to go on holding it. */
#include "attempt.h"
#include <fcntl.h>

/* The keyrings of the thread, process, session, user, user session, and the process's default. */
static const int RINGS[] = {-1, -2, -3, -4, -5};
static const char *RING_NAMES[] = {"thread", "process", "session", "user", "user-session"};

enum { GET_KEYRING_ID, JOIN_SESSION, SETPERM = 5, LINK = 8, SEARCH = 10, READ = 11, PERSISTENT = 22 };

static void leave(void)
{
	char name[64];

	for (size_t i = 0; i < sizeof(RINGS) / sizeof(*RINGS); i++) {
		snprintf(name, sizeof(name), "add-%s", RING_NAMES[i]);
		long key = syscall(SYS_add_key, "user", "left-behind", "secret", 6, RINGS[i]);
		tell(name, key);
		/* Makes it readable to all, if we may. */
		snprintf(name, sizeof(name), "open-%s", RING_NAMES[i]);
		tell(name, syscall(SYS_keyctl, SETPERM, key, 0x3f3f3f3f));
	}
	tell("link-session", syscall(SYS_keyctl, LINK, -4, -3));
	tell("persistent", syscall(SYS_keyctl, PERSISTENT, -1, -3));
}

static void look(void)
{
	char name[64], secret[16];

	for (size_t i = 0; i < sizeof(RINGS) / sizeof(*RINGS); i++) {
		snprintf(name, sizeof(name), "id-%s", RING_NAMES[i]);
		tell(name, syscall(SYS_keyctl, GET_KEYRING_ID, RINGS[i], 0));
		snprintf(name, sizeof(name), "search-%s", RING_NAMES[i]);
		long key = syscall(SYS_keyctl, SEARCH, RINGS[i], "user", "left-behind", 0);
		tell(name, key == -1 ? -1 : syscall(SYS_keyctl, READ, key, secret, sizeof(secret)));
	}
	tell("request", syscall(SYS_request_key, "user", "left-behind", NULL, 0));
	/* Every process of the same user can join a named session. */
	tell("join", syscall(SYS_keyctl, JOIN_SESSION, "left-behind"));
}

static void tell_listing(void)
{
	char text[4096];
	int file = open("/proc/keys", O_RDONLY);
	ssize_t length = file == -1 ? 0 : read(file, text, sizeof(text));

	say("listed", length > 0 ? "keys" : "none");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "leave"))
		leave();
	say_time("from");
	look();
	tell_listing();
	if (argc > 2)
		usleep(atoi(argv[2]) * 1000);
	say_time("until");
	return 0;
}
