#!/usr/bin/env python3
"""Starts the service and posts each available language's example (langs/*/example).

    demo.py COFFERDAM

COFFERDAM is the binary; it takes SANDBOX_ROOTFS from the environment. Prints every request in short and every answer in
full, and exits with 1 when an answer is not what it should be. Python 3.11,
standard library only.
"""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
VECTORS = REPOSITORY / "tests" / "langs"
START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 40
ANSWER_SECONDS_MAX = 60
BODY_CHARACTERS_SHOWN_MAX = 600

# What a hostile or broken solution gets: (title, solution, timeout, status, outcomes, exit code).
MISBEHAVING = [
    ("never ends", "def solution(a):\n    while True: pass\n", "1s", 200, ["timed_out"], None),
    ("prints 2 MiB", "def solution(a):\n    print('x' * (2 << 20))\n", "20s", 413, ["output_limit"], None),
    ("crashes", "import os\ndef solution(a):\n    os.kill(os.getpid(), 11)\n", "20s", 200, ["exited", "signaled"], 139),
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binary = Path(sys.argv[1]).resolve()
    languages = json.loads(subprocess.check_output([binary, "langs", "--json"], cwd=REPOSITORY))
    available = [language["slug"] for language in languages if language["available"]]
    absent = [language["slug"] for language in languages if not language["available"]]
    print(f"available here: {' '.join(available)}\nnot available: {' '.join(absent) or 'none'}\n")
    if "python" not in available:
        sys.exit("the demo needs python among the languages: make deps")
    port = free_port()
    server = subprocess.Popen(
        [binary, "serve", "--addr", f"127.0.0.1:{port}", "--langs", "langs"], cwd=REPOSITORY
    )
    try:
        wait_until_ready(server, port)
        faults = [fault for language in languages if language["available"] for fault in check_example(port, language)]
        for case in MISBEHAVING:
            faults += check_misbehaving(port, *case)
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(STOP_SECONDS_MAX)
    print(f"SIGTERM: the server drained and exited with {code}")
    if code != 0:
        faults.append(f"the server exited with {code}")
    if faults:
        sys.exit("\n".join(["NOT as it should be:", *faults]))
    print(f"all {len(available) + len(MISBEHAVING)} answers are as they should be")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_until_ready(server, port):
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode} before it was ready")
        try:
            if ask(port, "GET", "/health")[0] == 200:
                return
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"the server was not ready within {START_SECONDS_MAX} s")


def check_example(port, language):
    """Posts the example of a language; returns what is wrong with the answer."""
    slug = language["slug"]
    example = REPOSITORY / "langs" / slug / "example"
    texts = zip(["solution_text", "checker_text"], language["files"])
    request = {"lang_slug": slug} | {key: (example / name).read_text() for key, name in texts}
    request["asserts"] = (example / "asserts.json").read_text()
    expected = tomllib.loads((VECTORS / slug / "good.toml").read_text())["expect"]
    status, outcome, body = post(port, "a right solution", request)
    wanted = [(item["type"], json.loads(item["value"])) for item in expected["items"]]
    got = [(item["type"], item["value"]) for item in items_of(body.get("stdout", ""))]
    if (status, outcome, body.get("exit_code"), got) == (200, "exited", expected["exit_code"], wanted):
        return []
    return [f"{slug}: want exit code {expected['exit_code']} and {wanted}, got {status} {outcome} {body}"]


def check_misbehaving(port, title, solution, timeout, status, outcomes, exit_code):
    request = {"lang_slug": "python", "solution_text": solution, "asserts": '{"arguments":[[1]]}', "timeout": timeout}
    got_status, outcome, body = post(port, f"a solution that {title}", request)
    if got_status == status and outcome in outcomes and body.get("exit_code") == exit_code:
        return []
    return [f"python, {title}: want {status} {outcomes} {exit_code}, got {got_status} {outcome} {body}"]


def items_of(stdout):
    """The items a harness printed: one array, or one object a line."""
    values = [json.loads(line) for line in stdout.splitlines()]
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def post(port, title, request):
    """Posts `request`, shows both sides, and returns status, outcome and body."""
    sent = " ".join(request["solution_text"].split())
    print(f"POST /run  {request['lang_slug']}, {title}\n  > {sent[:90]}")
    began = time.monotonic()
    status, headers, text = ask(port, "POST", "/run", json.dumps(request))
    millis = (time.monotonic() - began) * 1000
    outcome = headers["X-Run-Outcome"]
    print(f"  < {status} {outcome} in {millis:.0f} ms\n  < {text[:BODY_CHARACTERS_SHOWN_MAX]}\n", flush=True)
    return status, outcome, json.loads(text)


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


if __name__ == "__main__":
    main()
