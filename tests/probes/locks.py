"""Locks whatever it can open, or works with the same files while another run has them locked."""

import fcntl
import mmap
import os
import subprocess
import sys
import time

F_SETLEASE = 1024
SHARED = [
    "/", "/etc", "/etc/passwd", "/usr", "/usr/bin/env", os.path.realpath(sys.executable), os.__file__,
    "/dev/null", "/dev/zero",
]
OWN = ["/workspace/checker.py", "/workspace/Makefile", "/workspace", "/tmp"]


def open_any(path):
    return os.open(path, os.O_RDWR if path.startswith("/dev/") else os.O_RDONLY)


def lease(file, kind):
    fcntl.fcntl(file, F_SETLEASE, kind)
    fcntl.fcntl(file, F_SETLEASE, fcntl.F_UNLCK)


def lock(path):
    file = open_any(path)
    kind = fcntl.LOCK_EX if path.startswith("/dev/") else fcntl.LOCK_SH
    return {
        "flock": answer(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB),
        "posix": answer(fcntl.lockf, file, kind | fcntl.LOCK_NB),
        "lease-read": answer(lease, file, fcntl.F_RDLCK),
        "lease-write": answer(lease, file, fcntl.F_WRLCK),
    }


def work(path):
    """Ordinary use of files that the program has not locked."""
    file = open_any(path)
    if os.path.isdir(path):
        return answer(os.listdir, file)
    if path == "/dev/null":
        return answer(os.write, file, b"x")
    if path == "/dev/zero":
        return answer(os.read, file, 1)
    return answer(lambda: (os.read(file, 1), mmap.mmap(file, 1, prot=mmap.PROT_READ)[0]))


def start_programs():
    started = subprocess.run([sys.executable, "-c", "import json"], timeout=10, check=False)
    return "ok" if started.returncode == 0 else "failed"


def lease_of_own():
    with open("/tmp/leased", "w") as file:
        return answer(lease, file.fileno(), fcntl.F_WRLCK)


def probe(role, seconds):
    if role == "lock":
        locked = {path: lock(path) for path in SHARED + OWN}
        began = time.time()
        time.sleep(seconds)
        return {"locked": locked, "lease-own": lease_of_own(),
                "from": began * 1000, "until": time.time() * 1000}
    began = time.time()
    worked = {path: work(path) for path in SHARED + OWN}
    return {
        "worked": worked,
        "programs": start_programs(),
        "locks": {path: lock(path)["flock"] for path in SHARED + OWN},
        "from": began * 1000,
        "until": time.time() * 1000,
    }
