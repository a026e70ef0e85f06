/* Keeps its file systems in use with lasting processes: busy PLACE... Uses working directories, open
 * files, mappings, locks, watches and running programs. */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_program(void)
{
	static char block[1 << 16];
	ssize_t bytes;
	int from = open("/proc/self/exe", O_RDONLY);
	int to = open("running", O_CREAT | O_WRONLY, 0755);
	while ((bytes = read(from, block, sizeof block)) > 0)
		if (write(to, block, bytes) != bytes)
			return -1;
	return close(from) | close(to);
}

static void stay(void)
{
	for (int number = 1; number < 32; number++)
		signal(number, SIG_IGN);
	alarm(0);
	for (int second = 0; second < 6; second++)
		sleep(1);
	_exit(0);
}

static void hold(void)
{
	int file = open("held", O_CREAT | O_RDWR, 0644);
	ftruncate(file, 1 << 16);
	char *mapped = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	flock(file, LOCK_EX);
	mapped[0] = 'x';
	mlock(mapped, 1 << 16);
	inotify_add_watch(inotify_init(), ".", IN_ALL_EVENTS);
	open(".", O_PATH);
	mkdir("removed", 0755);
	chdir("removed");
	rmdir("../removed");
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "stay") == 0)
		stay();
	long left = 0;
	for (int place = 1; place < argc; place++) {
		if (chdir(argv[place]) || copy_program())
			continue;
		for (int kind = 0; kind < 2; kind++) {
			if (fork())
				continue;
			setsid();
			close(1);
			close(2);
			if (kind == 0)
				execl("./running", "running", "stay", NULL);
			hold();
			stay();
		}
		left += 2;
	}
	count("left", left);
	usleep(200000);
	return 0;
}
