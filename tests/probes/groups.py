"""Joins multicast groups on the loopback in every way, or counts the packets that arrive there."""

import errno
import os
import socket
import struct
import time

GROUP, GROUP_6 = socket.inet_aton("239.1.2.3"), socket.inet_pton(socket.AF_INET6, "ff01::1234")
LOOPBACK = socket.inet_aton("127.0.0.1")
# Held until the program ends.
KEPT = []
MCAST_JOIN_GROUP, MCAST_JOIN_SOURCE_GROUP = 42, 46


def storage(address, family):
    """A struct sockaddr_storage."""
    plain = struct.pack("=HH4s", family, 0, address) if family == socket.AF_INET else struct.pack(
        "=HHI16sI", family, 0, 0, address, 0)
    return plain.ljust(128, b"\0")


def attempts():
    four, six = (socket.AF_INET, socket.SOCK_DGRAM), (socket.AF_INET6, socket.SOCK_DGRAM)
    by_index = struct.pack("=I4x", 1)
    return {
        "join": (four, 0, 35, GROUP + LOOPBACK),
        "join-tcp": ((socket.AF_INET, socket.SOCK_STREAM), 0, 35, GROUP + LOOPBACK),
        "join-source": (four, 0, 39, GROUP + LOOPBACK + LOOPBACK),
        "join-any": (four, 0, MCAST_JOIN_GROUP, by_index + storage(GROUP, socket.AF_INET)),
        "join-any-source": (four, 0, MCAST_JOIN_SOURCE_GROUP, by_index + storage(GROUP, socket.AF_INET)
                            + storage(LOOPBACK, socket.AF_INET)),
        "join6": (six, 41, 20, GROUP_6 + struct.pack("=I", 1)),
        "join6-any": (six, 41, MCAST_JOIN_GROUP, by_index + storage(GROUP_6, socket.AF_INET6)),
        "anycast": (six, 41, 27, GROUP_6 + struct.pack("=I", 1)),
    }


def answer(kind, level, option, value):
    try:
        KEPT.append(socket.socket(*kind))
        KEPT[-1].setsockopt(level, option, value)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def packets():
    with open("/proc/net/dev") as devices:
        line = next(line for line in devices if line.strip().startswith("lo:"))
    figures = line.split(":")[1].split()
    return int(figures[1]) + int(figures[9])


def probe(role, seconds):
    joined = {name: answer(*how) for name, how in attempts().items()} if role == "join" else {}
    time.sleep(seconds)
    return {"joined": joined, "packets": packets(), "namespace": os.readlink("/proc/self/ns/net")}
