"""Asks for a socket of every family, type and protocol that reaches past a network namespace or
into rarely used kernel code, and for changes to the network."""

import errno
import fcntl
import socket
import struct

STREAM, DATAGRAM, RAW, PACKETS = 1, 2, 3, 5
FAMILIES = {
    "x25": 9, "appletalk": 5, "ipx": 4, "ax25": 3, "netrom": 6, "rose": 11, "key": 15, "packet": 17,
    "atm-pvc": 8, "atm-svc": 20, "rds": 21, "pppox": 24, "llc": 26, "can": 29, "tipc": 30,
    "bluetooth": 31, "rxrpc": 33, "phonet": 35, "ieee802154": 36, "caif": 37, "alg": 38, "nfc": 39,
    "vsock": 40, "kcm": 41, "qipcrtr": 42, "smc": 43, "xdp": 44, "mctp": 45,
}
INTERNET_PROTOCOLS = {"sctp": (STREAM, 132), "dccp": (6, 33), "udplite": (DATAGRAM, 136),
                      "mptcp": (STREAM, 262), "l2tp": (DATAGRAM, 115), "smc": (STREAM, 256)}
NETLINK = {"sock-diag": 4, "xfrm": 6, "selinux": 7, "iscsi": 8, "audit": 9, "connector": 11,
           "netfilter": 12, "uevent": 15, "generic": 16, "crypto": 21}
NEW_LINK, NEW_ADDRESS, NEW_ROUTE = 16, 20, 24


def answer(*what):
    try:
        socket.socket(*what).close()
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def ask_for_change(kind):
    """Sends one route netlink request and returns the kernel's answer."""
    request = struct.pack("=IHHII16s", 32, kind, 0x405, 1, 0, bytes(16))
    with socket.socket(16, RAW, 0) as netlink:
        netlink.send(request)
        _, kind, _, _, _, code = struct.unpack("=IHHIIi", netlink.recv(4096)[:20])
    return errno.errorcode[-code] if kind == 2 and code else "ok"


def bring_up():
    with socket.socket(socket.AF_INET, DATAGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0))
            return "ok"
        except OSError as error:
            return errno.errorcode[error.errno]


def changes():
    requests = {"new-link": NEW_LINK, "new-address": NEW_ADDRESS, "new-route": NEW_ROUTE}
    try:
        return {name: ask_for_change(kind) for name, kind in requests.items()}
    except OSError as error:
        return dict.fromkeys(requests, errno.errorcode[error.errno])


def probe():
    # The best answer of all types: one that opens is enough.
    answers = {}
    for name, family in FAMILIES.items():
        kinds = {kind: answer(family, kind, 0) for kind in (STREAM, DATAGRAM, RAW, PACKETS)}
        opened = [kind for kind, said in kinds.items() if said == "ok"]
        answers[name] = "ok" if opened else kinds[RAW]
    for name, (kind, protocol) in INTERNET_PROTOCOLS.items():
        answers[name] = answer(socket.AF_INET, kind, protocol)
    for name, protocol in NETLINK.items():
        answers[f"netlink-{name}"] = answer(16, RAW, protocol)
    for version, family in (("4", socket.AF_INET), ("6", socket.AF_INET6)):
        for name, protocol in (("icmp", 1), ("tcp", 6), ("udp", 17), ("any", 255)):
            answers[f"raw{version}-{name}"] = answer(family, RAW, protocol)
        answers[f"packet{version}"] = answer(family, 10, 0x0300)
    answers |= changes()
    answers["loopback-down"] = bring_up()
    with open("/proc/net/dev") as devices:
        answers["interfaces"] = ",".join(line.split(":")[0].strip() for line in devices if ":" in line)
    answers["allowed"] = answer(socket.AF_INET, STREAM, 0)
    return answers
