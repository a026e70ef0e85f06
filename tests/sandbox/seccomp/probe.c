/*
 * Makes the system calls listed in a file, one a line, and prints what each answered:
 *
 *   in    <index> <how> <number> <six arguments>
 *   out   <index> <0 or the error's number>
 *
 * how is c for a plain call, t for one that may return twice, w for one that may wait for a signal,
 * i for the call with that number of the i386 table. If a call ends the process, its line is the
 * last of the output.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static char list[1 << 20];

/*
 * The second return of a call that returns twice exits at once and uses only registers: it may be a
 * thread, or a process in the same memory.
 */
#if defined(__x86_64__)
#define CALL(instruction, second_return)                                                         \
	static long instruction(long number, const long *args)                                   \
	{                                                                                        \
		long result;                                                                     \
		register long fourth __asm__("r10") = args[3];                                   \
		register long fifth __asm__("r8") = args[4];                                     \
		register long sixth __asm__("r9") = args[5];                                     \
		__asm__ volatile("syscall\n" second_return                                       \
				 : "=a"(result)                                                  \
				 : "a"(number), "D"(args[0]), "S"(args[1]), "d"(args[2]),        \
				   "r"(fourth), "r"(fifth), "r"(sixth)                           \
				 : "rcx", "r11", "memory");                                      \
		return result;                                                                   \
	}
CALL(call, "")
CALL(call_returning_twice,
     "test %%rax, %%rax\n jnz 1f\n mov $60, %%eax\n xor %%edi, %%edi\n syscall\n 1:\n")

static long call_i386(long number)
{
	long result;
	__asm__ volatile("xor %%ebx, %%ebx\n xor %%ecx, %%ecx\n xor %%edx, %%edx\n"
			 "xor %%esi, %%esi\n xor %%edi, %%edi\n int $0x80\n"
			 : "=a"(result)
			 : "a"(number)
			 : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
	return (int)result;
}
#elif defined(__aarch64__)
#define CALL(instruction, second_return)                                                         \
	static long instruction(long number, const long *args)                                   \
	{                                                                                        \
		register long x0 __asm__("x0") = args[0];                                        \
		register long x1 __asm__("x1") = args[1];                                        \
		register long x2 __asm__("x2") = args[2];                                        \
		register long x3 __asm__("x3") = args[3];                                        \
		register long x4 __asm__("x4") = args[4];                                        \
		register long x5 __asm__("x5") = args[5];                                        \
		register long x8 __asm__("x8") = number;                                         \
		__asm__ volatile("svc 0\n" second_return                                         \
				 : "+r"(x0)                                                      \
				 : "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5), "r"(x8)          \
				 : "memory");                                                    \
		return x0;                                                                       \
	}
CALL(call, "")
CALL(call_returning_twice, "cbnz x0, 1f\n mov x8, #93\n svc 0\n 1:\n")

static long call_i386(long number)
{
	(void)number;
	return -ENOSYS;
}
#else
#error "no system calls are known here"
#endif

static void woken(int signal)
{
	(void)signal;
}

static long make(char how, long number, const long *args)
{
	const struct itimerval soon = { .it_value = { .tv_usec = 100000 } };

	switch (how) {
	case 't':
		return call_returning_twice(number, args);
	case 'i':
		return call_i386(number);
	case 'w':
		setitimer(ITIMER_REAL, &soon, NULL);
		break;
	}
	return call(number, args);
}

int main(int argc, char **argv)
{
	const struct sigaction waking = { .sa_handler = woken };
	int file = open(argc > 1 ? argv[1] : "", O_RDONLY);
	ssize_t length, sum = 0;

	while ((length = read(file, list + sum, sizeof(list) - 1 - sum)) > 0)
		sum += length;
	if (length < 0 || sigaction(SIGALRM, &waking, NULL) < 0)
		return 99;
	close(file);

	char *rest = list;
	while (*rest) {
		char line[64];
		long args[6];
		long index = strtol(rest, &rest, 10);
		char how = *++rest;
		long number = strtol(rest + 1, &rest, 10);
		for (int i = 0; i < 6; i++)
			args[i] = (long)strtoull(rest, &rest, 16);
		while (*rest == '\n')
			rest++;
		long result = make(how, number, args);
		/* Addresses of calls that return one are no errors. */
		long error = result < 0 && result >= -4095 ? -result : 0;
		int bytes = snprintf(line, sizeof(line), "%ld %ld\n", index, error);
		if (write(1, line, bytes) != bytes)
			return 98;
		/* Whatever the call opened. */
		syscall(SYS_close_range, 3, ~0U, 0);
	}
	return 0;
}
