"""Leaves a name wherever it may write, or looks for that name everywhere it may look."""

import errno
import hashlib
import os
import time

NAME = "left-behind"
PLACES = [
    "/", "/workspace", "/workspace/check", "/tmp", "/tmp/home", "/var/tmp", "/dev/shm", "/dev/mqueue",
    "/run", "/run/lock", "/run/user", "/dev", "/etc", "/usr", "/usr/local", "/opt", "/srv", "/mnt",
    "/home", "/root", "/var", "/var/cache", "/opt/cofferdam/cache", "/var/lib", "/proc", "/sys",
    "/.overlay", "/.overlay/upper", "/.overlay/lower", "/.overlay/work", "/.empty", "/.var-tmp",
]


def mount_points():
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4] for line in file]
    return [point for point in points if os.path.isdir(point)]


def places():
    homes = [os.environ.get(name, "/tmp") for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR")]
    return sorted(set(PLACES + homes + mount_points()))


def attempt(action, *args):
    try:
        action(*args)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def leave(place):
    def write():
        with open(os.path.join(place, NAME), "w") as file:
            file.write("secret")

    answers = {attempt(write), attempt(os.mkdir, os.path.join(place, f"{NAME}-directory"))}
    return "ok" if "ok" in answers else sorted(answers)[0]


def look():
    found = []
    for top in places():
        # The rest of the root is large and read-only.
        depth = 2 if top in ("/", "/usr", "/opt", "/etc", "/var") else 8
        for parent, directories, files in os.walk(top):
            if parent.count("/") - top.count("/") >= depth or parent.startswith("/proc"):
                directories.clear()
            found += [os.path.join(parent, name) for name in directories + files if NAME in name]
    return sorted(set(found))


def append(path):
    with open(path, "a") as file:
        file.write("# left behind\n")


def digest():
    with open("/workspace/Makefile", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def probe(leaves, seconds):
    before = digest()
    left = {place: leave(place) for place in places()} if leaves else {}
    changed = [attempt(append, path) for path in ("/workspace/Makefile", "/workspace/checker.py")]
    began = time.time()
    found = look()
    time.sleep(seconds)
    return {
        "left": left, "found": found, "workspace": before, "changed": changed,
        "from": began * 1000, "until": time.time() * 1000,
    }
