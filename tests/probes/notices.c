/* Asks for leases and notifications of file access by others: notices PLACE. */
#include "attempts.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct f_owner_ex owner = {F_OWNER_PID, getpid()};
	if (argc != 2 || chdir(argv[1]))
		return 2;
	signal(SIGIO, SIG_IGN);
	int own = open("leased", O_CREAT | O_RDWR, 0600), place = open(".", O_RDONLY);
	attempt("own", own);
	attempt("write-lease", fcntl(own, F_SETLEASE, F_WRLCK));
	attempt("no-lease", fcntl(own, F_SETLEASE, F_UNLCK));
	attempt("read-lease", fcntl(open("leased", O_RDONLY), F_SETLEASE, F_RDLCK));
	attempt("lease-of", fcntl(own, F_GETLEASE));
	attempt("notify", fcntl(place, F_NOTIFY, DN_MODIFY | DN_MULTISHOT));
	attempt("notify-root", fcntl(open("/usr", O_RDONLY), F_NOTIFY, DN_ACCESS | DN_MULTISHOT));
	attempt("signal", fcntl(own, F_SETSIG, SIGUSR1));
	attempt("owner", fcntl(own, F_SETOWN_EX, &owner));
	attempt("usual-owner", fcntl(own, F_SETOWN, getpid()));
	unlink("leased");
	return 0;
}
