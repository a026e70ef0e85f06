"""Replaces the harness by the embedded program, with the run's own stdout."""

import os
import signal


def probe(*arguments):
    os.dup2(next(filter(is_open, STDOUT_CANDIDATES)), 1)
    # Python ignores these two signals, and an exec keeps ignored signals.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execv("/tmp/probe", ["/tmp/probe", *map(str, arguments)])
