/* Leaves System V and POSIX objects behind and looks for those of others.
 * Arguments: "leave" or "look", then for how many milliseconds to go on. */
#include "attempt.h"
#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define KEY 0x0c0ffe
#define IDS_MAX 64

struct message {
	long type;
	char text[8];
};

static void leave(void)
{
	const struct message message = {1, "secret"};
	int shm = shmget(KEY, 4096, IPC_CREAT | 0666), msg = msgget(KEY, IPC_CREAT | 0666);
	char *memory = shmat(shm, NULL, 0);
	long queue;

	if (memory != (char *)-1)
		strcpy(memory, "secret");
	tell("leave-shm", shm);
	tell("leave-sem", semget(KEY, 1, IPC_CREAT | 0666));
	tell("leave-msg", msgsnd(msg, &message, sizeof(message.text), IPC_NOWAIT));
	/* The system call wants the name without its slash. */
	queue = syscall(SYS_mq_open, "left-behind", O_CREAT | O_RDWR, 0666, NULL);
	tell("leave-mq", queue == -1 ? -1 : syscall(SYS_mq_timedsend, queue, "secret", 6, 1, NULL));
}

/* Object ids are per namespace, reused and easy to guess. */
static int count_guessed(void)
{
	struct message message;
	struct msqid_ds queue;
	struct shmid_ds memory;
	struct seminfo semaphore;
	int found = 0;

	for (int id = 0; id < IDS_MAX; id++) {
		void *attached = shmat(id, NULL, SHM_RDONLY);
		found += attached != (void *)-1;
		found += semctl(id, 0, GETVAL) != -1;
		found += msgrcv(id, &message, sizeof(message.text), 0, IPC_NOWAIT | MSG_COPY) != -1;
		found += shmctl(id, SHM_STAT, &memory) != -1;
		found += msgctl(id, MSG_STAT, &queue) != -1;
		found += semctl(id, 0, SEM_STAT, &semaphore) != -1;
	}
	return found;
}

static int count_listed(const char *path)
{
	FILE *file = fopen(path, "r");
	int lines = 0;

	for (int character; file && (character = fgetc(file)) != EOF;)
		lines += character == '\n';
	return lines - 1;
}

static void look(void)
{
	tell("find-shm", shmget(KEY, 0, 0));
	tell("find-sem", semget(KEY, 0, 0));
	tell("find-msg", msgget(KEY, 0));
	tell("find-mq", syscall(SYS_mq_open, "left-behind", O_RDONLY, 0, NULL));
	say("guessed", count_guessed() ? "some" : "none");
	say("listed", count_listed("/proc/sysvipc/shm") + count_listed("/proc/sysvipc/sem")
		+ count_listed("/proc/sysvipc/msg") > 0 ? "some" : "none");
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "leave"))
		leave();
	say_time("from");
	look();
	if (argc > 2)
		usleep(atoi(argv[2]) * 1000);
	say_time("until");
	return 0;
}
