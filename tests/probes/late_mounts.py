"""Waits for something to be mounted at a place of its own while it runs."""

import os
import time


def probe(place, seconds):
    began = time.time()
    seen = set()
    mounts = set()
    while time.time() < began + seconds:
        seen |= set(os.listdir(place))
        with open("/proc/self/mountinfo") as file:
            mounts |= {line.split()[4] for line in file}
        time.sleep(0.01)
    return {
        "seen": sorted(seen), "mounts": sorted(mounts),
        "from": began * 1000, "until": time.time() * 1000,
    }
