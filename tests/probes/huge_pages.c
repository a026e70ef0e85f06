/* Pages from the host's reserved pool, and locked ones. */
#include "attempts.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <unistd.h>

#define HUGE (2L << 20)

static long map(int flags)
{
	void *at = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	return at == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	attempt("map", map(0));
	attempt("map_huge", map(MAP_HUGETLB));
	attempt("map_huge_gib", map(MAP_HUGETLB | 30 << MAP_HUGE_SHIFT));
	attempt("memfd", memfd_create("small", MFD_CLOEXEC));
	attempt("memfd_huge", memfd_create("huge", MFD_HUGETLB));
	attempt("shm", shmget(IPC_PRIVATE, HUGE, IPC_CREAT | 0600));
	attempt("shm_huge", shmget(IPC_PRIVATE, HUGE, IPC_CREAT | SHM_HUGETLB | 0600));
	attempt("lock_limit", setrlimit(RLIMIT_MEMLOCK, &all));
	return 0;
}
