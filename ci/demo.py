#!/usr/bin/env python3
"""Starts the service and posts the example of each available language (langs/*/example).

    demo.py COFFERDAM

COFFERDAM is the binary; it takes SANDBOX_ROOTFS from the environment. Prints each request in short
and each answer in full. Exits with 1 if an answer is wrong.
"""

import json
import subprocess
import time
import tomllib
from pathlib import Path

import rig
from rig import REPOSITORY

# What the example of every language returns.
VECTOR = REPOSITORY / "tests" / "langs" / "default" / "good.toml"
START_SECONDS_MAX = 30
BODY_CHARACTERS_SHOWN_MAX = 600

# Broken and hostile solutions: title, solution, timeout, and the status, outcomes and exit code wanted.
MISBEHAVING = [
    ("never ends", "def solution(a):\n    while True: pass\n", "1s", 200, ["timed_out"], None),
    ("prints 2 MiB", "def solution(a):\n    print('x' * (2 << 20))\n", "20s", 413, ["output_limit"], None),
    ("crashes", "import os\ndef solution(a):\n    os.kill(os.getpid(), 11)\n", "20s", 200, ["exited", "signaled"], 139),
]


def main():
    [binary] = rig.arguments(__doc__, 1)
    binary = Path(binary).resolve()
    languages = json.loads(rig.run([binary, "langs", "--json"], cwd=REPOSITORY))
    available = [language["slug"] for language in languages if language["available"]]
    absent = [language["slug"] for language in languages if not language["available"]]
    print(f"available here: {' '.join(available)}\nnot available: {' '.join(absent) or 'none'}\n", flush=True)
    if "python" not in available:
        rig.fail("needs Python among the languages: run `make deps`")
    port = rig.free_port()
    server = subprocess.Popen(
        [binary, "serve", "--addr", f"127.0.0.1:{port}", "--langs", "langs"], cwd=REPOSITORY
    )
    faults = []
    try:
        rig.wait_until_ready(server, port, START_SECONDS_MAX)
        for language in languages:
            if language["available"]:
                faults += check_example(port, language)
        for case in MISBEHAVING:
            faults += check_misbehaving(port, *case)
    finally:
        faults += rig.stop(server)
    print(f"SIGTERM: the service drained and exited with {server.returncode}")
    rig.finish(faults, f"all {len(available) + len(MISBEHAVING)} answers are right")


def check_example(port, language):
    """Posts the example of a language; returns what is wrong with the answer."""
    slug = language["slug"]
    example = REPOSITORY / "langs" / slug / "example"
    texts = zip(["solution_text", "checker_text"], language["files"])
    request = {"lang_slug": slug} | {key: (example / name).read_text() for key, name in texts}
    request["asserts"] = (example / "asserts.json").read_text()
    expected = tomllib.loads(VECTOR.read_text())["expect"]
    status, outcome, body = post(port, "a right solution", request)
    wanted = [(item["type"], json.loads(item["value"])) for item in expected["items"]]
    got = [(item["type"], item["value"]) for item in rig.items_of(body.get("stdout", ""))]
    if (status, outcome, body.get("exit_code"), got) == (200, "exited", expected["exit_code"], wanted):
        return []
    return [f"{slug}: want exit code {expected['exit_code']} and {wanted}, got {status} {outcome} {body}"]


def check_misbehaving(port, title, solution, timeout, status, outcomes, exit_code):
    request = {"lang_slug": "python", "solution_text": solution, "asserts": '{"arguments":[[1]]}', "timeout": timeout}
    got_status, outcome, body = post(port, f"a solution that {title}", request)
    if got_status == status and outcome in outcomes and body.get("exit_code") == exit_code:
        return []
    return [f"python, {title}: want {status} {outcomes} {exit_code}, got {got_status} {outcome} {body}"]


def post(port, title, request):
    """Posts `request`, prints both sides, and returns status, outcome and body."""
    sent = " ".join(request["solution_text"].split())
    print(f"POST /run  {request['lang_slug']}, {title}\n  > {sent[:90]}")
    began = time.monotonic()
    answer = rig.post_run(port, request)
    millis = (time.monotonic() - began) * 1000
    outcome = answer.headers["X-Run-Outcome"]
    text = answer.text[:BODY_CHARACTERS_SHOWN_MAX]
    print(f"  < {answer.status} {outcome} in {millis:.0f} ms\n  < {text}\n", flush=True)
    return answer.status, outcome, json.loads(answer.text)


if __name__ == "__main__":
    rig.start(main)
