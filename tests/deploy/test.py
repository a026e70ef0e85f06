#!/usr/bin/env python3
"""Holds deploy/ to its promises: what is rendered is valid and says what the documents say, and
the service starts, runs and drains with no more rights than the files leave it.

    test.py COFFERDAM [PART...]

COFFERDAM is the binary that is started; PART one of kubernetes, systemd, compose,
documents, start and metrics, all when none is given. Root, Debian and its packages are all it counts on: what it
renders and validates with comes from PyPI, checked against hashes. Python 3.11.
"""

import os
import sys
from pathlib import Path

import tools


def main():
    sys.dont_write_bytecode = True
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    binary = Path(sys.argv[1]).resolve()
    if Path(sys.executable) != tools.PYTHON:
        tools.install()
        os.execv(tools.PYTHON, [tools.PYTHON, *sys.argv])

    import composition
    import documents
    import manifests
    import start
    import unit
    parts = {
        "kubernetes": manifests.check,
        "systemd": lambda: unit.check(binary),
        "compose": composition.check,
        "documents": lambda: documents.check(binary),
        "start": lambda: start.check(binary),
        "metrics": metrics,
    }
    faults = []
    for name in sys.argv[2:] or parts:
        found = [f"{name}: {fault}" for fault in parts[name]()]
        print(f"deploy: {name}: {'; '.join(found) or 'holds'}", flush=True)
        faults += found
    if faults:
        sys.exit("\n".join(faults))


def metrics():
    """GET /metrics has what the autoscaling asks for."""
    import claims
    return [f"no {name} in GET /metrics" for name in claims.metrics_not_served()]


if __name__ == "__main__":
    main()
