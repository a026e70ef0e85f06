"""A fork bomb in Python: at most 2000 processes, for 15 seconds."""

import errno
import os
import select
import signal
import time

FORKS_MAX = 2000


def fork_on(forks, refusals, deadline):
    # Each generation doubles: eleven are 2047 processes.
    for _ in range(11):
        try:
            child = os.fork()
        except OSError as error:
            os.write(refusals, errno.errorcode[error.errno].encode() + b"\n")
            break
        if child == 0:
            os.write(forks, b"!")
    time.sleep(max(0, deadline - time.monotonic()))
    os._exit(0)


def probe(hold_seconds):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    forks, told_forks = os.pipe()
    refusals, told_refusals = os.pipe()
    deadline = time.monotonic() + 15
    if os.fork() == 0:
        os.write(told_forks, b"!")
        fork_on(told_forks, told_refusals, deadline)
    forked = 0
    # Until the count has not grown for 300 ms.
    while select.select([forks], [], [], 0.3)[0] and forked < FORKS_MAX:
        forked += len(os.read(forks, 4096))
    why = os.read(refusals, 4096).split() if select.select([refusals], [], [], 0)[0] else []
    time.sleep(hold_seconds)
    return {"forked": forked, "refused": sorted({word.decode() for word in why})}
