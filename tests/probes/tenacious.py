"""Starts programs that only a kill of every process ends, each with the marker."""

import os
import signal
import sys
import time

WAYS = {
    "sleeping": "import time; time.sleep(15)",
    "spinning": "import signal; signal.alarm(15)\nwhile True: pass",
    "stopped": "import os; os.kill(os.getpid(), 19)",
    "deaf": "import signal, time\nfor number in signal.valid_signals() - {9, 19}: signal.signal(number, 1)\ntime.sleep(15)",
}


def start(code, marker, in_session):
    if os.fork() == 0:
        if in_session:
            os.setsid()
            if os.fork() != 0:
                os._exit(0)
        os.execv(sys.executable, [sys.executable, "-c", code, marker])


def probe(marker):
    # Never reaped: no process waits for the second kind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for in_session in (False, True):
        for code in WAYS.values():
            start(code, marker, in_session)
    time.sleep(15)
