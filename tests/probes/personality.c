/* Tries to turn off address randomization and to make every page executable. */
#include "attempt.h"

static const struct {
	const char *name;
	unsigned long persona;
} PERSONAS[] = {
	{"no-randomize", 0x40000}, {"read-implies-exec", 0x400000}, {"page-zero", 0x100000},
	{"compat-layout", 0x200000}, {"3gb", 0x8000000}, {"32bit", 0x800000},
	{"linux32-no-randomize", 0x40008}, {"sysv", 0x1}, {"all", 0xfffffffe},
	{"no-randomize-high-bit", 0x40000 | 1UL << 32},
	{"query-high-bit-no-randomize", 0xffffffffUL << 32 | 0x40000},
};

static long set(const void *persona)
{
	return syscall(SYS_personality, *(const unsigned long *)persona);
}

int main(void)
{
	const unsigned long query = 0xffffffff;
	long before = set(&query);

	tell("query", before);
	for (size_t i = 0; i < sizeof(PERSONAS) / sizeof(*PERSONAS); i++)
		tell_apart(PERSONAS[i].name, set, &PERSONAS[i].persona);
	/* In this process, so that a change would last. */
	tell("no-randomize-for-good", set(&PERSONAS[0].persona));
	say("persona", set(&query) == before && before == 0 ? "default" : "changed");
	return 0;
}
