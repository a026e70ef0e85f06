#!/usr/bin/env python3
"""ask.py SCENE: starts the service in a scene and posts runs that its cgroups must limit. Prints the
results in the format of Rust's tests. Runs in the guest.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import rig

PORT = 4040
ANSWER_SECONDS_MAX = 90

SUM = "def solution(a, b):\n    return a + b\n"
HOG = "def solution(a, b):\n    return len(b'x' * (200 << 20))\n"
FORKS = ("import os, time\n"
         "def solution(a, b):\n"
         "    try:\n"
         "        while True:\n"
         "            if os.fork() == 0: time.sleep(60)\n"
         "    except BlockingIOError: os._exit(1)\n")
BUSY = "def solution(a, b):\n    while True: pass\n"
# The solution, its timeout and the outcome wanted.
CASES = {
    "a_right_solution_is_answered": (SUM, "30s", "exited"),
    "a_memory_hog_meets_its_limit": (HOG, "30s", "memory_limit"),
    "a_fork_bomb_meets_its_limit": (FORKS, "30s", "process_limit"),
    "an_endless_loop_times_out": (BUSY, "3s", "timed_out"),
}


def main():
    [scene] = rig.arguments(__doc__, 1)
    env = {**os.environ, "RUN_MEMORY_MAX": "64MiB", "RUN_PIDS_MAX": "40", "ISOLATION": "strict"}
    service = subprocess.Popen(
        ["/mnt/guest/enter", scene, "/mnt/cofferdam", "serve", "--addr", f"127.0.0.1:{PORT}",
         "--langs", "/mnt/langs"], env=env)
    try:
        rig.wait_until_ready(service, PORT)
        failed = sum(not holds(name, *case) for name, case in CASES.items())
        failed += not every_sandbox_is_limited()
    finally:
        faults = rig.stop(service)
    print(*faults, f"test service::sigterm_drains_it ... {'FAILED' if faults else 'ok'}", sep="\n", flush=True)
    sys.exit(1 if failed or faults else 0)


def holds(name, solution, timeout, outcome):
    request = {"lang_slug": "python", "solution_text": solution, "timeout": timeout,
               "asserts": json.dumps({"arguments": [[1, 2]]})}
    answer = rig.post_run(PORT, request, seconds_max=ANSWER_SECONDS_MAX)
    peak = int(answer.headers.get("X-Run-Memory-Peak-Bytes", 0))
    right = (answer.status == 200 and answer.headers.get("X-Run-Outcome") == outcome
             and 0 < peak <= 64 << 20
             and (outcome != "exited" or '"value": 3' in json.loads(answer.text)["stdout"]))
    print(f"test service::{name} ... {'ok' if right else 'FAILED'}", flush=True)
    if not right:
        print(answer.status, answer.headers.items(), answer.text, flush=True)
    return right


def every_sandbox_is_limited():
    """Whether checks and evaluations, which have a group each, hand the controllers down."""
    tops = [top for top in Path("/sys/fs/cgroup").rglob("cofferdam-*")
            if not top.name.endswith("-supervisor")]
    handed_down = [(top / "cgroup.subtree_control").read_text().split() for top in tops]
    right = len(tops) == 2 and all({"cpu", "memory", "pids"} <= set(on) for on in handed_down)
    print(f"test service::checks_and_evaluations_are_limited ... {'ok' if right else 'FAILED'}", flush=True)
    if not right:
        print(*zip(tops, handed_down), sep="\n", flush=True)
    return right


if __name__ == "__main__":
    rig.start(main)
