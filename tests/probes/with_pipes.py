"""Runs a program with the run's own stdout and stderr: the arguments "out" and "err" become their descriptors."""

import os
import stat
import subprocess
import time


def probe(stay, *argv):
    out = next(fd for fd in STDOUT_CANDIDATES if stat.S_ISFIFO(os.fstat(fd).st_mode))
    numbers = {"out": str(out), "err": "2"}
    done = subprocess.Popen([numbers.get(arg, arg) for arg in argv], pass_fds=(out, 2), stdin=subprocess.DEVNULL)
    if stay:
        time.sleep(60)
    return done.wait()
