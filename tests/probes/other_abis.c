/* Creates a directory through every system call entry except the native one.
 *
 * The number of mkdir in the i386 ABI is that of a harmless call in the usual one, so a filter that
 * looks at the number alone lets it pass. What a door answers may be lost: the directory tells. */
#include "attempt.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ADDRESS 0x10000000
#define PAGE 4096

static void tell_made(const char *door, const char *path, int status)
{
	struct stat found;

	if (lstat(path, &found) == 0)
		say(door, "executed");
	else if (WIFSIGNALED(status))
		say(door, signal_name(WTERMSIG(status)));
	else
		say(door, WEXITSTATUS(status) ? errno_name(WEXITSTATUS(status)) : "ended");
}

/* A program of the other word size: one header, one segment, the call, a crash. */
static void tell_foreign_program(const unsigned char *code, size_t length, int machine, int flags)
{
	const char *path = "/tmp/foreign", *made = "/tmp/by-foreign";
	unsigned char image[160] = {0x7f, 'E', 'L', 'F', 1, 1, 1};
	uint16_t kind[] = {2, machine}, sizes[] = {52, 32, 1, 0, 0, 0};
	uint32_t head[] = {1, ADDRESS + 96, 52, 0, flags};
	uint32_t segment[] = {1, 0, ADDRESS, ADDRESS, sizeof(image), sizeof(image), 7, PAGE};
	int status, file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0755);
	pid_t child;

	memcpy(image + 16, kind, sizeof(kind));
	memcpy(image + 20, head, sizeof(head));
	memcpy(image + 40, sizes, sizeof(sizes));
	memcpy(image + 52, segment, sizeof(segment));
	memcpy(image + 96, code, length);
	strcpy((char *)image + 136, made);
	if (write(file, image, sizeof(image)) != sizeof(image) || close(file))
		exit(1);
	child = fork();
	if (child == 0) {
		execl(path, path, NULL);
		_exit(errno);
	}
	waitpid(child, &status, 0);
	tell_made("program", made, status);
}

#ifdef __x86_64__
enum mode { LONG, COMPATIBLE };

/* Reachable with 32 bits: code, then the path, then where the answer goes, then a stack. */
static unsigned char *page;
#define PATH (ADDRESS + 2048)
#define ANSWER (ADDRESS + 3072)
#define STACK (ADDRESS + PAGE - 64)
#define UNANSWERED 0x55555555u

static unsigned char *put(unsigned char *at, const char *instruction, size_t length, uint32_t operand)
{
	memcpy(at, instruction, length);
	memcpy(at + length, &operand, sizeof(operand));
	return at + length + sizeof(operand);
}

static void write_code(enum mode mode, uint32_t number, const char *door)
{
	unsigned char *at = page;

	at = put(at, "\xb8", 1, number);	/* eax */
	at = put(at, "\xbb", 1, PATH);		/* ebx, ecx: the i386 ABI's arguments */
	at = put(at, "\xb9", 1, 0700);
	at = put(at, "\xbf", 1, PATH);		/* edi, esi: the usual ones */
	at = put(at, "\xbe", 1, 0700);
	at = put(at, "\xbd", 1, STACK);		/* ebp: where sysenter keeps the stack */
	memcpy(at, door, 2);
	at += 2;
	at = mode == LONG ? put(at, "\x89\x04\x25", 3, ANSWER) : put(at, "\xa3", 1, ANSWER);
	*at = 0xf4;				/* hlt: not for programs, so it ends them */
}

static void jump(enum mode mode)
{
	if (mode == COMPATIBLE)
		__asm__ volatile("mov %0, %%rsp; pushq $0x23; pushq %1; lretq"
			: : "r"((uint64_t)STACK), "r"((uint64_t)ADDRESS) : "memory");
	else
		__asm__ volatile("mov %0, %%rsp; jmp *%1"
			: : "r"((uint64_t)STACK), "r"((uint64_t)ADDRESS) : "memory");
}

static void tell_door(const char *name, enum mode mode, uint32_t number, const char *door)
{
	uint32_t answer = UNANSWERED;
	int status;
	pid_t child;

	snprintf((char *)page + 2048, 1024, "/tmp/by-%s", name);
	memcpy(page + 3072, &answer, sizeof(answer));
	write_code(mode, number, door);
	child = fork();
	if (child == 0) {
		alarm(5);
		jump(mode);
	}
	waitpid(child, &status, 0);
	memcpy(&answer, page + 3072, sizeof(answer));
	if (answer != UNANSWERED && answer > -4096u)
		status = -(int)answer << 8;
	tell_made(name, (char *)page + 2048, status);
}

static void tell_vsyscall(const char *name, unsigned offset)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		long (*entry)(void *, void *, void *) = (void *)(0xffffffffff600000 + offset);
		entry(NULL, NULL, NULL);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say(name, WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "answered");
}

int main(void)
{
	static const unsigned char i386[] = {
		0xb8, 39, 0, 0, 0, 0xbb, 136, 0, 0, ADDRESS >> 24, 0xb9, 0xc0, 1, 0, 0, 0xcd, 0x80, 0xf4,
	};
	static const char int80[] = "\xcd\x80", sysenter[] = "\x0f\x34", syscall_[] = "\x0f\x05";

	page = mmap((void *)ADDRESS, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (page != (void *)ADDRESS)
		return 1;
	tell_door("usual", LONG, 83, syscall_);
	tell_door("int80", LONG, 39, int80);
	tell_door("int80-usual-number", LONG, 83, int80);
	tell_door("sysenter", LONG, 39, sysenter);
	tell_door("int80-compatible", COMPATIBLE, 39, int80);
	tell_door("sysenter-compatible", COMPATIBLE, 39, sysenter);
	tell_door("syscall-compatible", COMPATIBLE, 39, syscall_);
	tell_door("x32", LONG, 0x40000000 | 83, syscall_);
	tell_door("x32-negative", LONG, 0xc0000000 | 83, syscall_);
	tell_door("bit-31", LONG, 0x80000000 | 83, syscall_);
	tell_foreign_program(i386, sizeof(i386), 3, 0);
	tell_vsyscall("vsyscall-gettimeofday", 0);
	tell_vsyscall("vsyscall-time", 0x400);
	tell_vsyscall("vsyscall-getcpu", 0x800);
	tell_vsyscall("vsyscall-none", 0xc00);
	tell_vsyscall("vsyscall-inside", 0x409);
	return 0;
}
#else
int main(void)
{
	/* mov r7, #39; ldr r0, =path; mov r1, #0400; svc 0; udf; path */
	static const uint32_t arm[] = {
		0xe3a07027, 0xe59f0008, 0xe3a01c01, 0xef000000, 0xe7f000f0, ADDRESS + 136,
	};

	tell("usual", mkdir("/tmp/by-usual", 0700) == 0 ? 0 : -1);
	tell_foreign_program((const unsigned char *)arm, sizeof(arm), 40, 0x05000000);
	return 0;
}
#endif
