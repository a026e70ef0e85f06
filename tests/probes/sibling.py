"""Lives for a number of seconds and reports every signal that reached it or its child."""

import os
import signal
import time


def probe(seconds):
    received = []
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, lambda number, _: received.append(number))
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.02)
    ended = os.waitpid(child, os.WNOHANG) != (0, 0)
    # A control: a signal that is sent arrives.
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"received": [number for number in received if number != signal.SIGCHLD], "child_ended": ended}
