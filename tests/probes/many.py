"""Holds a number of processes for a time; reports when, by the clock that all runs share."""

import errno
import os
import time


def probe(count, seconds):
    children, refused = [], None
    for _ in range(count):
        try:
            child = os.fork()
        except OSError as error:
            refused = errno.errorcode[error.errno]
            break
        if child == 0:
            time.sleep(15)
            os._exit(0)
        children.append(child)
    held_from = time.monotonic()
    time.sleep(seconds)
    alive = sum(os.path.exists(f"/proc/{child}") for child in children)
    held_to = time.monotonic()
    for child in children:
        os.kill(child, 9)
    for child in children:
        os.waitpid(child, 0)
    return {"held": alive, "refused": refused, "from": held_from, "to": held_to}
