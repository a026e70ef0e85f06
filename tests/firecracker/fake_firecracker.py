#!/usr/bin/env python3
"""Firecracker, or its jailer, as a script has it: answers the API and notes what it is asked.

    fake_firecracker.py SCRIPT ARGUMENTS...

SCRIPT is a JSON file; each of its keys may be missing:

    record          a file that gets a line of JSON for the arguments and for each request
    exit            words printed before it ends at once, with 7
    faults          path of a request -> [status, body]
    silent_at       path of the request that it does not answer
    dies_at         path of the request at which it ends, with 9
    guest           the socket of what plays the guest: joined to the host's once the machine starts
"""

import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

script = json.loads(Path(sys.argv[1]).read_text())
arguments = sys.argv[2:]


def option(name):
    return arguments[arguments.index(name) + 1]


def record(line):
    with open(script["record"], "a") as file:
        file.write(json.dumps(line) + "\n")


def in_jail(path):
    """A path as the jailed process has it, where this process sees it."""
    if "--exec-file" not in arguments or not path.startswith("/"):
        return path
    name = Path(option("--exec-file")).name
    return str(Path(option("--chroot-base-dir")) / name / option("--id") / "root") + path


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "host"

    def log_message(self, *_):
        pass

    def do_PUT(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        record([self.path, body])
        if script.get("silent_at") == self.path:
            time.sleep(600)
        if script.get("dies_at") == self.path:
            print("a panic of its own", flush=True)
            os._exit(9)
        status, answer = script.get("faults", {}).get(self.path, [204, ""])
        answer = answer.encode()
        self.send_response(status)
        if answer:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if answer:
            self.wfile.write(answer)
        if self.path == "/vsock":
            self.server.vsock = body["uds_path"]
        if self.path == "/actions" and "guest" in script:
            join(script["guest"], in_jail(self.server.vsock) + "_4041")


class Server(HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)


def join(one, other):
    ends = []
    for path in (one, other):
        end = socket.socket(socket.AF_UNIX)
        # Shorter than an address may be.
        directory = os.open(os.path.dirname(path) or ".", os.O_PATH)
        end.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        ends.append(end)
    for source, target in (ends, reversed(ends)):
        threading.Thread(target=pass_on, args=(source, target), daemon=True).start()


def pass_on(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


record(arguments)
if "exit" in script:
    print(script["exit"], flush=True)
    sys.exit(7)
place = in_jail(option("--api-sock"))
os.chdir(os.path.dirname(place) or ".")
Server(os.path.basename(place), Api).serve_forever()
