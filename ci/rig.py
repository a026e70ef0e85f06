"""Shared by the rigs: verdicts, commands with a deadline, Debian packages, ports, HTTP and services.

Needs Python 3.11 and its standard library only; a copy runs inside the QEMU guests.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
# The name of the rig, as its make target has it: test_v2.py is v2.
NAME = Path(sys.argv[0]).stem.removeprefix("test_")
# A command that takes longer hangs.
COMMAND_SECONDS_MAX = 1800
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 40
ANSWER_SECONDS_MAX = 60
OUTPUT_CHARACTERS_SHOWN_MAX = 3000
APT_OPTIONS = ["-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
# A command after this sees its own mounts only; they end with it.
PRIVATE_MOUNTS = ["unshare", "--mount", "--propagation", "private"]


def start(main):
    """Runs `main`. SIGTERM exits through the `finally` blocks, which clean up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()


def arguments(usage, least, most=None):
    """The arguments of the command line; exits with `usage` if there are too few or too many."""
    given = sys.argv[1:]
    if not least <= len(given) <= (least if most is None else most):
        sys.exit(usage)
    return given


def say(*words):
    print(f"{NAME}:", *words, flush=True)


def fail(reason):
    sys.exit(f"{NAME}: {reason}")


def finish(faults, holds):
    """Exits with every fault, or says what holds."""
    if faults:
        sys.exit("\n".join([f"{NAME}: FAILED:", *faults]))
    say(holds)


def require_root(reason):
    if os.getuid() != 0:
        fail(f"needs root: {reason}")


def attempt(command, seconds_max=COMMAND_SECONDS_MAX, **settings):
    """Runs `command` to its end and captures what it prints; the caller judges the exit code."""
    capture = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if "input" not in settings:
        capture["stdin"] = subprocess.DEVNULL
    try:
        return subprocess.run(command, text=True, timeout=seconds_max, **{**capture, **settings})
    except subprocess.TimeoutExpired:
        fail(f"{shown(command)} ran longer than {seconds_max} s")


def run(command, seconds_max=COMMAND_SECONDS_MAX, **settings):
    """Returns what `command` prints to stdout; exits with its output if it fails."""
    done = attempt(command, seconds_max, **settings)
    if done.returncode != 0:
        output = f"{done.stdout or ''}{done.stderr or ''}"[-OUTPUT_CHARACTERS_SHOWN_MAX:]
        fail(f"{shown(command)} exited with {done.returncode}\n{output}")
    return done.stdout


def show(command, **settings):
    """As `run`, with the command's output on ours."""
    run(command, stdout=None, stderr=None, **settings)


def shown(command):
    return " ".join(map(str, command))[:200]


def timed(what, command):
    """As `run`, and prints how long the command took."""
    began = time.monotonic()
    run(command, stderr=subprocess.STDOUT)
    say(f"{what}: {time.monotonic() - began:.0f} s")


def apt_get(*words, **settings):
    show(["apt-get", *APT_OPTIONS, *words],
         env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **settings)


def missing_packages(needed):
    """Of `needed` (command: package), the packages whose command is missing."""
    return [package for command, package in needed.items() if not shutil.which(command)]


def install(packages):
    if packages:
        apt_get("update")
        apt_get("install", "-y", "--no-install-recommends", *packages)


def in_private_mounts():
    """Starts this program again in a mount namespace of its own, which ends with it."""
    if "RIG_PRIVATE_MOUNTS" not in os.environ:
        os.environ["RIG_PRIVATE_MOUNTS"] = "1"
        os.execvp("unshare", [*PRIVATE_MOUNTS, *sys.orig_argv])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    text: str


def send(port, method, path, body=None, headers=None, seconds_max=ANSWER_SECONDS_MAX):
    """Sends a request and returns the connection; `receive` reads the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds_max)
    connection.request(method, path, body, headers or {})
    return connection


def receive(connection):
    try:
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def get(port, path, **settings):
    return receive(send(port, "GET", path, **settings))


def post_run(port, request, **settings):
    """The answer to POST /run."""
    return receive(send(port, "POST", "/run", json.dumps(request), **settings))


def items_of(stdout):
    """The items that a language's harness printed: one array, or one object per line."""
    values = [json.loads(line) for line in stdout.splitlines()]
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def wait_until(condition, what, seconds_max, process=None):
    """Polls `condition` and returns its first true value; None if `process` ends before that.
    A refused connection counts as false. Exits when the time is over."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        if process and process.poll() is not None:
            return None
        try:
            if value := condition():
                return value
        except OSError:
            pass
        time.sleep(0.05)
    fail(f"{what}: not within {seconds_max} s")


def first_health(process, port, seconds_max=START_SECONDS_MAX):
    """The first answer to GET /health, or None if `process` ends before it answers."""
    return wait_until(lambda: get(port, "/health"), "an answer to GET /health", seconds_max, process)


def wait_until_ready(process, port, seconds_max=START_SECONDS_MAX):
    """Exits unless the service answers GET /health with 200."""
    answer = first_health(process, port, seconds_max)
    if answer is None:
        fail(f"the service exited with {process.returncode} before it was ready")
    if answer.status != 200:
        fail(f"GET /health: {answer.status} {answer.text}")


def stop(process, name="the service"):
    """Sends SIGTERM and returns what is wrong with the end of `process`."""
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return [f"{name} did not stop within {STOP_SECONDS_MAX} s of SIGTERM"]
    return [] if code == 0 else [f"{name} exited with {code} after SIGTERM"]
