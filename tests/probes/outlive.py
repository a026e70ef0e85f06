"""Leaves a grandchild in its own session that tries to outlive the run."""

import os
import sys

# Reports its start through the first descriptor, so that the run ends after it.
GRANDCHILD = """
import contextlib, os, sys, time
ready, harness, way = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
outputs = [int(descriptor) for descriptor in sys.argv[4].split(",")]
if way == "closed":
    kept = [os.dup(descriptor) for descriptor in outputs]
    for descriptor in {0, 1, 2, *outputs}:
        os.close(descriptor)
    outputs = kept
os.write(ready, b"!")
os.close(ready)
if way == "closed":
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{harness}") and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    for output in outputs:
        # With its reader gone it gets no further than here, but it goes on.
        with contextlib.suppress(OSError):
            os.write(output, b"late words")
    for path in ("/workspace/late", "/tmp/late", "/dev/shm/late"):
        with contextlib.suppress(OSError):
            open(path, "w").close()
time.sleep(15)
"""


def outputs():
    open_ones = [descriptor for descriptor in STDOUT_CANDIDATES if is_open(descriptor)]
    return [*open_ones, 2]


def is_open(descriptor):
    try:
        os.set_inheritable(descriptor, True)
    except OSError:
        return False
    return True


def probe(marker, way):
    told, ready = os.pipe()
    os.set_inheritable(ready, True)
    harness = os.getpid()
    descriptors = ",".join(map(str, outputs()))
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            arguments = ["-c", GRANDCHILD, str(ready), str(harness), way, descriptors, marker]
            os.execv(sys.executable, [sys.executable, *arguments])
        os._exit(0)
    os.wait()
    os.close(ready)
    return {"started": os.read(told, 1) == b"!"}
