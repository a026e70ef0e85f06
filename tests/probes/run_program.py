"""Runs a program to its end and reports its exit and its output."""

import subprocess


def probe(*argv):
    done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=15)
    return {
        "code": done.returncode,
        "out": done.stdout.decode("utf-8", "replace"),
        "err": done.stderr.decode("utf-8", "replace"),
    }
