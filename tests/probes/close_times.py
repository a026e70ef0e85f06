"""Reports, after a delay, the shortest time to open and close each of several files."""

import os
import time

BATCHES = 20
CALLS = 10


def nanos(path):
    began = time.perf_counter_ns()
    for _ in range(CALLS):
        os.close(os.open(path, os.O_RDONLY))
    return (time.perf_counter_ns() - began) // CALLS


def probe(wait_seconds, *paths):
    time.sleep(wait_seconds)
    began = time.time()
    times = {path: min(nanos(path) for _ in range(BATCHES)) for path in paths}
    return {"nanos": times, "from": began * 1000, "until": time.time() * 1000}
