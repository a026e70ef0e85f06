#!/usr/bin/env python3
"""ask.py SCENE: starts the service there and posts to it what its groups have to deal with. Says
what came of it in the words of Rust's tests."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time

PORT = 4040
START_SECONDS_MAX = 60
ANSWER_SECONDS_MAX = 90
STOP_SECONDS_MAX = 40

SUM = "def solution(a, b):\n    return a + b\n"
HOG = "def solution(a, b):\n    return len(b'x' * (200 << 20))\n"
FORKS = ("import os, time\n"
         "def solution(a, b):\n"
         "    try:\n"
         "        while True:\n"
         "            if os.fork() == 0: time.sleep(60)\n"
         "    except BlockingIOError: os._exit(1)\n")
BUSY = "def solution(a, b):\n    while True: pass\n"
# What is posted, with which timeout, and how it has to end.
CASES = {
    "a_right_solution_is_answered": (SUM, "30s", "exited"),
    "a_memory_hog_meets_its_limit": (HOG, "30s", "memory_limit"),
    "a_fork_bomb_meets_its_limit": (FORKS, "30s", "process_limit"),
    "a_loop_without_end_runs_out_of_time": (BUSY, "3s", "timed_out"),
}


def main():
    scene, = sys.argv[1:]
    env = {**os.environ, "RUN_MEMORY_MAX": "64MiB", "RUN_PIDS_MAX": "40", "ISOLATION": "strict"}
    service = subprocess.Popen(
        ["/mnt/guest/enter", scene, "/mnt/cofferdam", "serve", "--addr", f"127.0.0.1:{PORT}",
         "--langs", "/mnt/langs"], env=env)
    try:
        wait_until_ready(service)
        faults = sum(not holds(name, *case) for name, case in CASES.items())
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(STOP_SECONDS_MAX)
    print(f"test service::sigterm_drains_it ... {'ok' if code == 0 else 'FAILED'}", flush=True)
    sys.exit(1 if faults or code != 0 else 0)


def wait_until_ready(service):
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if service.poll() is not None:
            sys.exit(f"the service ended with {service.returncode}")
        try:
            if ask("GET", "/health")[0] == 200:
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("the service does not answer")


def holds(name, solution, timeout, outcome):
    request = {"lang_slug": "python", "solution_text": solution, "timeout": timeout,
               "asserts": json.dumps({"arguments": [[1, 2]]})}
    status, headers, body = ask("POST", "/run", json.dumps(request))
    peak = int(headers.get("X-Run-Memory-Peak-Bytes", 0))
    right = (status == 200 and headers.get("X-Run-Outcome") == outcome and 0 < peak <= 64 << 20
             and (outcome != "exited" or '"value": 3' in json.loads(body)["stdout"]))
    print(f"test service::{name} ... {'ok' if right else 'FAILED'}", flush=True)
    if not right:
        print(status, headers.items(), body, flush=True)
    return right


def ask(method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


if __name__ == "__main__":
    main()
