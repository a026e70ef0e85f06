"""Tries to meet another run at every socket address that two programs on one host could share."""

import errno
import select
import socket
import time

PORT = 47111
UNIX, TCP, UDP = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
MEETINGS = {
    "abstract-stream": (UNIX, TCP, "\0left-behind-stream"),
    "abstract-datagram": (UNIX, UDP, "\0left-behind-datagram"),
    "abstract-packets": (UNIX, socket.SOCK_SEQPACKET, "\0left-behind-packets"),
    "tcp": (socket.AF_INET, TCP, ("127.0.0.1", PORT)),
    "tcp-other-loopback": (socket.AF_INET, TCP, ("127.1.2.3", PORT + 1)),
    "udp": (socket.AF_INET, UDP, ("127.0.0.1", PORT)),
    "tcp6": (socket.AF_INET6, TCP, ("::1", PORT)),
    "udp6": (socket.AF_INET6, UDP, ("::1", PORT)),
}
OUTSIDE = {
    "everybody": (UDP, ("255.255.255.255", PORT)),
    "group": (UDP, ("239.1.2.3", PORT)),
    "metadata": (TCP, ("169.254.169.254", 80)),
    "bridge": (TCP, ("172.17.0.1", 80)),
    "internet": (TCP, ("192.0.2.1", 80)),
}


def listen():
    """The sockets that could be created, and the errors of the others."""
    sockets, answers = {}, {}
    for name, (family, kind, address) in MEETINGS.items():
        try:
            listener = socket.socket(family, kind)
            listener.bind(address)
            if kind != UDP:
                listener.listen()
            sockets[name] = listener
        except OSError as error:
            answers[name] = errno.errorcode[error.errno]
    return sockets, answers


def say(family, kind, address, text):
    try:
        with socket.socket(family, kind) as caller:
            caller.settimeout(0.3)
            if address[0] in ("255.255.255.255",):
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            caller.connect(address)
            caller.send(text)
            if kind == UDP and family != UNIX:
                # The error that nothing listens arrives after the first message.
                time.sleep(0.01)
                caller.send(text)
        return "ok"
    except TimeoutError:
        return "timeout"
    except OSError as error:
        return errno.errorcode[error.errno]


def heard(sockets):
    """The senders, by message."""
    words = set()
    by_socket = {listener: name for name, listener in sockets.items()}
    while ready := select.select(list(by_socket), [], [], 0.05)[0]:
        for listener in ready:
            if MEETINGS[by_socket[listener]][1] != UDP:
                listener, _ = listener.accept()
                listener.settimeout(0.3)
            words.add(listener.recv(64).decode())
    return sorted(words)


def probe(role, host_port, seconds):
    if role == "listen":
        sockets, answers = listen()
        began = time.time()
        for name in sockets:
            answers[name] = say(*MEETINGS[name], f"self-{name}".encode())
        to_itself = heard(sockets)
        time.sleep(seconds)
        return {
            "answers": answers, "to_itself": to_itself, "from_others": heard(sockets),
            "from": began * 1000, "until": time.time() * 1000,
        }
    began = time.time()
    answers = {name: say(*where, b"from another run") for name, where in MEETINGS.items()}
    for name, (kind, address) in OUTSIDE.items():
        answers[name] = say(socket.AF_INET, kind, address, b"from a run")
    answers["service"] = say(socket.AF_INET, TCP, ("127.0.0.1", host_port), b"GET / HTTP/1.0\r\n\r\n")
    return {"answers": answers, "from": began * 1000, "until": time.time() * 1000}
