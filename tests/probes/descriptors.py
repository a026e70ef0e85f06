"""The descriptors of every process of the run, where they lead, and other ways out of the root."""

import errno
import os

NUMBERS_MAX = 1024


def held():
    """Descriptors by process, with their targets."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError as error:
            found[pid] = errno.errorcode[error.errno]
            continue
        found[pid] = {}
        for number in numbers:
            try:
                found[pid][number] = os.readlink(f"/proc/{pid}/fd/{number}")
            except FileNotFoundError:
                pass  # The one that listed.
    return found


def climb(number):
    """Escapes if a descriptor is a directory outside the root."""
    os.fchdir(number)
    try:
        return os.getcwd()
    finally:
        os.chdir("/workspace")


def same(path):
    return os.path.samestat(os.stat(path), os.stat("/"))


def ups():
    os.chdir("/")
    for _ in range(64):
        os.chdir("..")
    try:
        return same(".")
    finally:
        os.chdir("/workspace")


def chroot_and_back():
    """The classic escape: a root below the working directory."""
    outside = os.open("/", os.O_RDONLY)
    os.makedirs("/tmp/lower", exist_ok=True)
    try:
        os.chroot("/tmp/lower")
    finally:
        os.fchdir(outside)
        for _ in range(64):
            os.chdir("..")
        os.chdir("/workspace")


def ways_to(path):
    inside = path.lstrip("/")
    prefixes = [
        "/", "/proc/self/root/", "/proc/self/cwd/../../../../", "/proc/thread-self/root/", "/proc/1/root/",
        "/proc/1/cwd/", "/proc/1/task/1/root/", "/proc/self/task/1/root/", "/.overlay/lower/", "/.overlay/",
        "/.old/", "/oldroot/", "/.pivot/", "/mnt/", "/host/", "/rootfs/",
    ]
    ways = [prefix + inside for prefix in prefixes]
    for number in range(3, 20):
        ways += [f"/proc/self/fd/{number}/../{inside}", f"/dev/fd/{number}/{os.path.basename(path)}",
                 f"/proc/1/fd/{number}", f"/proc/1/fd/{number}/{os.path.basename(path)}"]
    return ways


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def probe(secret):
    # The listing itself has left no descriptor open here.
    numbers = {number: answer(os.fstat, number) for number in range(NUMBERS_MAX)}
    return {
        "held": held(),
        "open": [number for number, said in numbers.items() if said == "ok"],
        "climbed": {number: climb(number) for number in numbers if answer(climb, number) == "ok"},
        "links": {
            link: answer(os.readlink, link)
            for link in ("/proc/self/cwd", "/proc/1/root", "/proc/1/cwd", "/proc/1/exe")
        },
        "ups": ups(),
        "root": same("/proc/self/root"),
        "chroot": answer(chroot_and_back),
        "secret": {way: answer(read, way) for way in ways_to(secret)},
        "readable": answer(read, "/etc/passwd"),
    }
