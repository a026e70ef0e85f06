"""The standard input of a run, and the result of writing to it."""

import os


def answer(call, *args):
    try:
        return repr(call(*args))
    except OSError as error:
        return error.strerror


def probe():
    return {
        "is": os.readlink("/proc/self/fd/0"),
        "read": answer(os.read, 0, 1 << 20),
        "write": answer(os.write, 0, b"x"),
        "write_anew": answer(os.write, os.open("/proc/self/fd/0", os.O_WRONLY), b"x" * (1 << 20)),
        "terminal": os.isatty(0),
        "controlling": answer(os.open, "/dev/tty", os.O_RDWR),
    }
