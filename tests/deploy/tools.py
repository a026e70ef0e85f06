"""The programs that the tests render and validate with, below target/deploy."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PLACE = REPOSITORY / "target" / "deploy"
PYTHON = PLACE / "venv" / "bin" / "python"
DOCKER_COMPOSE = PLACE / "venv" / "bin" / "docker-compose"
KUBECTL = PLACE / "kubectl"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# Commands, or Python's modules, and the Debian packages that have them.
COMMANDS = {"systemd-analyze": "systemd", "setpriv": "util-linux", "make": "make"}
MODULES = {"ensurepip": "python3-venv"}


def install():
    """Makes all of it, unless it was made of the same requirements before."""
    install_packages()
    stamp, wanted = PLACE / "stamp", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(PLACE, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", PLACE / "venv"], check=True)
    subprocess.run([
        PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--retries", "5",
        "--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", REQUIREMENTS,
    ], check=True)
    take_kubectl()
    stamp.write_text(wanted)


def install_packages():
    missing = [package for command, package in COMMANDS.items() if not shutil.which(command)]
    missing += [package for module, package in MODULES.items() if not has(module)]
    if missing:
        apt_get = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*apt_get, "update"], check=True, env=env)
        subprocess.run([*apt_get, "install", "-y", "--no-install-recommends", *missing],
                       check=True, env=env)


def has(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL
                          ).returncode == 0


def take_kubectl():
    """It lies in an archive in an archive in a package."""
    [package] = (PLACE / "venv").glob("lib/python3*/site-packages/aws_cdk/*/_jsii/*.tgz")
    with tarfile.open(package) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        with zipfile.ZipFile(layer) as inner, inner.open("kubectl/kubectl") as kubectl:
            with open(KUBECTL, "wb") as out:
                shutil.copyfileobj(kubectl, out)
    KUBECTL.chmod(0o755)
