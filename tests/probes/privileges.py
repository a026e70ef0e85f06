"""Tries to become another user, with set-id programs and with system calls."""

import ctypes
import os
import stat
import subprocess
import time

FIELDS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
          "Seccomp")
PROGRAMS_MAX = 24
# Directories with such programs, and the depth to search, since libraries have many files.
TOPS = {"/usr/bin": 0, "/usr/sbin": 0, "/usr/local/bin": 0, "/usr/lib": 1, "/usr/libexec": 1, "/opt": 2}
LIBC = ctypes.CDLL(None, use_errno=True)


def call(function, *args):
    if function(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def status(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.rstrip().split(":", 1) for line in file if ":" in line)
    except OSError:
        return None
    return {field: " ".join(lines.get(field, "").split()) for field in FIELDS}


def is_privileged(entry):
    """Set-user-id, set-group-id, or with capabilities of its own."""
    mode = entry.stat(follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode) or not mode & 0o111:
        return False
    return mode & 0o6000 or "security.capability" in os.listxattr(entry.path, follow_symlinks=False)


def programs(directory, depth):
    """The executable programs below a directory."""
    found = []
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                found += programs(entry.path, depth - 1) if depth else []
            elif is_privileged(entry) and os.access(entry.path, os.X_OK):
                found.append(entry.path)
    except PermissionError:
        pass  # As closed to the run as any of its files.
    return found


def ids_while_it_runs(path):
    """The ids of such a program from its exec to its end; a full pipe keeps it waiting."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, bytes(4096))
    except BlockingIOError:
        os.set_blocking(write, True)
    environment = {**os.environ, "LD_PRELOAD": "/tmp/none.so", "LD_LIBRARY_PATH": "/tmp"}
    child = subprocess.Popen([path, "-x"], stdin=subprocess.PIPE, stdout=write, stderr=write,
                             env=environment)
    seen = set()
    deadline = time.monotonic() + 0.05
    # Not reaped: a zombie still shows its user.
    while time.monotonic() < deadline:
        if now := status(child.pid):
            seen.add(tuple(now.values()))
    os.close(read)
    os.close(write)
    child.kill()
    child.wait()
    return [dict(zip(FIELDS, values)) for values in sorted(seen)]


def attempts():
    with open("/tmp/mine", "w") as file:
        file.write("#!/bin/sh\nid\n")
    # The third version of the interface, this process, every set full.
    every = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
    tries = {
        "setuid": lambda: os.setuid(0),
        "setreuid": lambda: os.setreuid(0, 0),
        "setresuid-saved": lambda: os.setresuid(-1, -1, 0),
        "setuid-neighbour": lambda: os.setuid(10002),
        "setgid": lambda: os.setgid(0),
        "setgroups": lambda: os.setgroups([0]),
        "no-groups": lambda: os.setgroups([]),
        "chown": lambda: os.chown("/tmp/mine", 0, 0),
        "set-user-id": lambda: os.chmod("/tmp/mine", 0o4755),
        "set-group-id": lambda: os.chmod("/tmp/mine", 0o2755),
        "device": lambda: os.mknod("/tmp/device", stat.S_IFBLK | 0o666, os.makedev(8, 0)),
        "capability-file": lambda: os.setxattr("/tmp/mine", "security.capability", bytes(20)),
        "capset": lambda: call(LIBC.capset, *every),
        "new-privileges": lambda: call(LIBC.prctl, 38, 0, 0, 0, 0),
        "ambient": lambda: call(LIBC.prctl, 47, 2, 21, 0, 0),
        "secure-bits": lambda: call(LIBC.prctl, 28, 0x2F, 0, 0, 0),
    }
    return {name: answer(attempt) for name, attempt in tries.items()}


def probe():
    before = status("self")
    found = [path for top in TOPS if os.path.isdir(top) for path in programs(top, TOPS[top])]
    return {
        "before": before,
        "init": status(1),
        "programs": {path: ids_while_it_runs(path) for path in found[:PROGRAMS_MAX]},
        "attempts": attempts(),
        "bounding": [number for number in range(64) if LIBC.prctl(23, number, 0, 0, 0) == 1],
        "after": status("self"),
    }
