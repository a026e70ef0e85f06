"""Short hostile runs, to be started by the hundred: the argument names one."""

import errno
import os
import resource
import signal
import socket
import sys
import threading
import time


def nothing():
    pass


def forks():
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)


def sessions():
    for _ in range(10):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(15)
            os._exit(0)


def threads():
    for _ in range(50):
        threading.Thread(target=time.sleep, args=(15,), daemon=True).start()


def flood():
    output = next(descriptor for descriptor in STDOUT_CANDIDATES if is_open(descriptor))
    for _ in range(1000):
        os.write(output, b"x" * 65536)


def memory():
    blocks = []
    for _ in range(128):
        blocks.append(b"x" * (1 << 20))


def disk():
    try:
        with open("/tmp/large", "wb") as file:
            for _ in range(16):
                file.write(b"x" * (1 << 20))
                file.flush()
    except OSError as error:
        sys.exit(1 if error.errno == errno.ENOSPC else 2)


def deep_tree():
    top = os.getcwd()
    for _ in range(1000):
        os.mkdir("d")
        os.chdir("d")
    os.chmod(".", 0)
    os.chdir(top)


def many_files():
    try:
        for number in range(2000):
            open(f"/tmp/{number}", "w").close()
    except OSError:
        pass


def links():
    for path, target in (("check/asserts.json", "/etc/shadow"), ("Makefile", "/proc/1/environ")):
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(target, path)
    os.mkfifo("/tmp/fifo")
    os.link("checker.py", "/tmp/link")
    os.rename("check", "/tmp/check")


def descriptors():
    kept = []
    try:
        while len(kept) < 2000:
            kept.append(os.pipe())
    except OSError:
        pass
    left, right = socket.socketpair()
    # Never received, so they stay in flight.
    socket.send_fds(left, [b"x"], [pair[0] for pair in kept[:50]])
    for pair in kept[:10]:
        os.close(pair[1])
    os.set_inheritable(right.fileno(), True)
    if os.fork() == 0:
        time.sleep(15)
    del kept[50:]


def sockets():
    kept = []
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        for _ in range(20):
            server = socket.socket(family)
            address = "\0%d" % len(kept) if family == socket.AF_UNIX else ("localhost", 0)
            try:
                server.bind(address)
                server.listen()
            except OSError:
                continue
            client = socket.socket(family)
            client.connect(server.getsockname())
            client.setblocking(False)
            try:
                while client.send(b"x" * 65536):
                    pass
            except OSError:
                pass
            kept.append((server, client))
    if os.fork() == 0:
        time.sleep(15)


def shared_memory():
    for number in range(100):
        with open(f"/dev/shm/{number}", "wb") as file:
            file.write(b"x" * 10_000)
        kept = os.memfd_create(str(number))
        os.write(kept, b"x" * 10_000)
        os.close(kept)


def crash():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def deaf():
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
    time.sleep(15)


def stop_all():
    for _ in range(5):
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)
    os.kill(-1, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(15)


def probe(kind):
    globals()[kind]()
    return kind
