"""The environment, ids, signals and limits of a run."""

import ctypes
import locale
import os
import resource
import socket
import sys


def words(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return None


def status(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def limits():
    kinds = {
        "cpu": resource.RLIMIT_CPU, "open files": resource.RLIMIT_NOFILE, "core": resource.RLIMIT_CORE,
        "processes": resource.RLIMIT_NPROC, "file size": resource.RLIMIT_FSIZE,
    }
    return {name: resource.getrlimit(kind) for name, kind in kinds.items()}


def probe():
    mine = [pid for pid in os.listdir("/proc") if pid.isdigit() and words(pid, "environ")]
    first = min(map(int, mine))
    return {
        # The environment of the first program, to which nothing was added.
        "first": first,
        "environment": dict(word.split("=", 1) for word in words(first, "environ")),
        "everybody": sorted({word.split("=")[0] for pid in mine for word in words(pid, "environ")}),
        "arguments": {pid: words(pid, "cmdline") for pid in os.listdir("/proc") if pid.isdigit()},
        "ignored": status(first)["SigIgn"],
        "blocked": status(first)["SigBlk"],
        "umask": os.umask(0o022),
        "directory": os.getcwd(),
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "encoding": [sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL, "")],
        "host": [socket.gethostname(), os.uname().nodename],
        "limits": limits(),
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    }
