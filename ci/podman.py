"""podman with runc and a store of its own, which is removed at the end."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import rig

NEEDED = {"podman": "podman", "runc": "runc"}
# Without these flags podman asks for more than a machine may give. A sandbox needs 256 at most.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]


class Podman:
    """A context that owns a scratch folder and all that podman leaves behind."""

    def __enter__(self):
        # podman does not unmount all that it mounts.
        self.groups_before = parent_groups()
        self.scratch = Path(tempfile.mkdtemp(prefix=f"cofferdam-{rig.NAME}-", dir="/var/tmp"))
        self.command = ["podman", "--root", f"{self.scratch}/store", "--runroot", f"{self.scratch}/run",
                        "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
        return self

    def __exit__(self, *_):
        rig.attempt([*self.command, "rm", "--all", "--force"])
        rig.attempt(["umount", "--recursive", "--quiet", self.scratch / "store" / "overlay"])
        shutil.rmtree(self.scratch)
        remove_groups(parent_groups() - self.groups_before)

    def run_command(self, *words):
        """The command line of `podman run`, with the limits."""
        return [*self.command, "run", "--rm", *LIMITS, *words]

    def stop(self, name, process):
        """Sends SIGTERM to the container `name`, which `process` runs; returns its exit code."""
        rig.attempt([*self.command, "kill", "--signal", "TERM", name])
        return process.wait(rig.STOP_SECONDS_MAX)


def parent_groups():
    """podman's cgroups, which it never removes."""
    root = Path("/sys/fs/cgroup")
    return {path for pattern in ["libpod_parent", "*/libpod_parent"] for path in root.glob(pattern)}


def remove_groups(groups):
    for group in groups:
        for path, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(path)
            except OSError as error:
                print(f"{rig.NAME}: cannot remove {path}: {error.strerror}", file=sys.stderr)
