# Looks for what other runs or the service left in this process and its sandbox, then plants what it
# can for the next run to find.
import ctypes
import glob
import os
import re
import resource
import signal
import socket
import sys

MEMORY_BYTES_MAX = 64 << 20


def text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return "errno %d" % error.errno


def files():
    found = []
    for top in ("/tmp", "/dev/shm", "/var/tmp", "/dev/mqueue", os.getcwd()):
        for directory, _, names in os.walk(top):
            # What the harness compiles has a name of its own in each run.
            found += [os.path.join(directory, name) for name in names]
    return sorted(found)


def descriptors():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(name + " " + re.sub(r"\d+", "N", os.readlink("/proc/self/fd/" + name)))
        except OSError:
            pass
    return sorted(found)


def tokens():
    found = set()
    for line in text("/proc/self/maps").splitlines():
        words = line.split()
        begin, end = (int(word, 16) for word in words[0].split("-"))
        if "r" not in words[1] or end - begin > MEMORY_BYTES_MAX or "[v" in line:
            continue
        try:
            with open("/proc/self/mem", "rb", 0) as memory:
                memory.seek(begin)
                bytes_of = memory.read(end - begin) or b""
        except (OSError, ValueError, OverflowError):
            continue
        found.update(re.findall(rb"(?:planted|sentinel)-[0-9a-f]{32}", bytes_of))
    return sorted(token.decode() for token in found)


def status():
    kept = ("Uid", "Gid", "Groups", "TracerPid", "Sig", "Shd", "Cap", "NoNewPrivs", "Seccomp", "Threads")
    return [line for line in text("/proc/self/status").splitlines() if line.startswith(kept)
            and not line.startswith("SigQ")]


def limits():
    names = [name for name in dir(resource) if name.startswith("RLIMIT_") and name != "RLIMIT_CPU"]
    return [[name, resource.getrlimit(getattr(resource, name))] for name in names]


def children():
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return "none"


def look():
    return {
        "files": files(),
        "processes": len(glob.glob("/proc/[0-9]*")),
        "descriptors": descriptors(),
        "environment": sorted(os.environ.items()),
        "sockets": [text("/proc/net/" + name).count("\n") for name in ("unix", "tcp", "udp", "packet")],
        "ipc": [text("/proc/sysvipc/" + name) for name in ("shm", "msg", "sem")],
        "keys": [text("/proc/keys"), text("/proc/key-users")],
        "timers": [text("/proc/self/timers"), [signal.getitimer(which) for which in range(3)]],
        "status": status(),
        "group": text("/proc/self/cgroup"),
        "mounts": text("/proc/self/mountinfo").count("\n"),
        "maps": sorted({line.split()[-1] for line in text("/proc/self/maps").splitlines() if "/" in line}),
        "limits": limits(),
        "children": children(),
        "login": [text("/proc/self/loginuid"), text("/proc/self/sessionid")],
    }


def plants(token):
    library = ctypes.CDLL(None, use_errno=True)

    def written(path):
        with open(path, "w") as file:
            file.write(token)

    def listens():
        place = socket.socket(socket.AF_UNIX)
        place.bind("\0" + token)
        place.listen()
        return place

    def waits():
        if os.fork() == 0:
            os.setsid()
            os.environ["PLANTED"] = token
            signal.pause()
            os._exit(0)

    yield lambda: written("/tmp/" + token)
    yield lambda: written("/dev/shm/" + token)
    yield lambda: written("/var/tmp/" + token)
    yield lambda: written(token)
    yield lambda: os.mkfifo("/tmp/fifo")
    yield lambda: os.symlink("/tmp/" + token, "/tmp/link")
    yield lambda: os.environ.update(PLANTED=token)
    yield listens
    yield lambda: library.shmget(4660, 4096, 0o1666)
    yield lambda: library.msgget(4660, 0o1666)
    yield lambda: library.semget(4660, 1, 0o1666)
    yield lambda: library.mq_open(b"/planted", 66, 0o666, None)
    yield lambda: library.syscall(248, b"user", b"planted", token.encode(), len(token), -3)
    yield lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 600)
    yield waits


def probe(token):
    seen = {"look": look(), "tokens": tokens()}
    kept = sys.modules.setdefault("kept_by_tenant", [])
    for plant in plants(token):
        try:
            kept.append(plant())
        except (OSError, AttributeError):
            pass
    return seen
