#!/usr/bin/env python3
"""Grades agents that forge the outcomes of tests, and again without each wall that holds some of them.

    test_case_forgers.py COFFERDAM TOOLS [VERSION]

COFFERDAM is the binary. TOOLS is a folder for pytest, which comes from PyPI, checked against hashes; a VERSION of it is
not checked. Needs Debian and root.
"""

import hashlib
import os
import shutil
from pathlib import Path

import rig
from rig import REPOSITORY

LIST = REPOSITORY / "ci" / "case_forgers" / "requirements.txt"
# The Python of sandboxes; another one may come first in our own PATH.
PYTHON = "/usr/bin/python3"
MODULES = {"ensurepip": "python3-venv"}
# Walls of the runner, each of which a weakened build can remove.
WALLS = ["isolated", "framed", "canary", "marked", "counted"]


def main():
    given = rig.arguments(__doc__, 2, 3)
    rig.require_root("it installs packages and makes sandboxes")
    binary, tools = (Path(argument).resolve() for argument in given[:2])
    wanted = ["--requirement", LIST, "--require-hashes"] if not given[2:] else [f"pytest=={given[2]}"]
    packages = install(tools, wanted)
    known = {**os.environ, "CASE_PYTEST": str(packages), "REQUIRE_PRIVILEGED": "1"}
    test({**known, "COFFERDAM_BIN": str(binary)})
    weakened = tools.parent / "weakened" / "cofferdam"
    wrapper = {"RUSTC_WORKSPACE_WRAPPER": str(REPOSITORY / "ci" / "weakened_rustc"), "WEAKENED": str(weakened)}
    for wall in WALLS:
        rig.say(f"without {wall}")
        test({**known, **wrapper, "COFFERDAM_WITHOUT": wall})


def test(environment):
    """Runs the tests that need pytest."""
    rig.show([os.environ.get("CARGO", "cargo"), "test", "--locked", "--test", "cases", "--",
              "--ignored", "--color=never", "forgers::"], cwd=REPOSITORY, env=environment)


def install(tools, wanted):
    """Returns a folder with the packages, unless they are there from the same list."""
    rig.install([package for module, package in MODULES.items()
                 if rig.attempt([PYTHON, "-c", f"import {module}"]).returncode != 0])
    tools.mkdir(parents=True, exist_ok=True)
    stamp, packages, python = tools / "stamp", tools / "packages", tools / "python"
    version = rig.run([PYTHON, "--version"])
    digest = hashlib.sha256(LIST.read_bytes() + f"{version}{wanted}".encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return packages
    rig.say("downloading pytest")
    for old in [packages, python]:
        shutil.rmtree(old, ignore_errors=True)
    rig.run([PYTHON, "-m", "venv", python])
    rig.run([
        python / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--retries", "5",
        "--only-binary=:all:", "--target", packages, *wanted,
    ])
    stamp.write_text(digest)
    return packages


if __name__ == "__main__":
    rig.start(main)
