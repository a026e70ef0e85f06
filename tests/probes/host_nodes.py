"""Uses sockets and fifos of the host in a bound directory, and its device nodes."""

import errno
import os
import socket
import time


def refusal(attempt, *args):
    try:
        attempt(*args)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def connect(path):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        stream.sendall(b"x")


def send(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"x", path)


def write(path, how):
    file = os.open(path, how | os.O_NONBLOCK)
    try:
        os.write(file, b"x")
    finally:
        os.close(file)


def set_times(path, how):
    file = os.open(path, how)
    try:
        os.utime(file)
    finally:
        os.close(file)


def sockets(directory):
    answers = {
        "stream": refusal(connect, f"{directory}/stream"),
        "datagram": refusal(send, f"{directory}/datagram"),
        "fifo": refusal(write, f"{directory}/fifo", os.O_WRONLY),
        "fifo-both-ways": refusal(write, f"{directory}/fifo", os.O_RDWR),
    }
    # A socket that appears during this run.
    late, deadline = f"{directory}/late", time.monotonic() + 10
    while not os.path.lexists(late) and time.monotonic() < deadline:
        time.sleep(0.02)
    answers["late"] = refusal(connect, late)
    return {"answers": answers, "shown": refusal(os.stat, f"{directory}/late")}


def devices():
    nodes = ("null", "zero", "full", "random", "urandom")
    attempts = {"stdin": refusal(os.utime, 0), "stdin-by-path": refusal(os.utime, "/dev/stdin")}
    for path in (f"/dev/{node}" for node in nodes):
        attempts[path] = refusal(os.utime, path)
        attempts[f"{path} opened to read"] = refusal(set_times, path, os.O_RDONLY)
        attempts[f"{path} opened to write"] = refusal(set_times, path, os.O_WRONLY)
        attempts[f"{path} mode"] = refusal(os.chmod, path, 0o666)
    uses = {
        "write": refusal(write, "/dev/null", os.O_WRONLY | os.O_APPEND),
        "truncate": refusal(write, "/dev/null", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        "read": refusal(lambda: open("/dev/urandom", "rb").read(8)),
        "stdin": "ok" if os.read(0, 1) == b"" else "not empty",
    }
    return {"attempts": attempts, "uses": uses}


def probe(what, *args):
    return {"sockets": sockets, "devices": devices}[what](*args)
