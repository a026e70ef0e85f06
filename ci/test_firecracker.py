#!/usr/bin/env python3
"""Runs the backend `firecracker` against real guests under QEMU: Debian's cloud kernels with our
binary as their init, and a vsock device that gives QEMU the same socket as Firecracker's.

    test_firecracker.py COFFERDAM CACHE V2_CACHE TOOLS [TEST]
COFFERDAM is the binary that the guests get. CACHE and V2_CACHE keep the parts of the guests; the second
is the cache of test_v2.py, whose busybox is used. TOOLS is where the vsock device is installed. The
commands of docs/firecracker.md make the root image. TEST selects the tests whose names contain it, and `prepare` none: only the parts are made.
QEMU emulates the processor, so KVM is not needed. Needs Debian, root and cargo.
"""

import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import rig
from guests import images, packages
from rig import REPOSITORY

VSOCK_DEVICE = "vhost-device-vsock"
VSOCK_DEVICE_VERSION = "0.3.0"
DOCUMENT = REPOSITORY / "docs" / "firecracker.md"
# For each kernel: whether the guest init starts from the initramfs, or from the root image.
GUEST_IN_INITRAMFS = [True, False]
MODULES = [*packages.MODULES, "vmw_vsock_virtio_transport"]


def main():
    given = rig.arguments(__doc__, 4, 5)
    rig.require_root("it installs QEMU and makes the guest's system")
    binary, cache, v2_cache, tools = (Path(argument).resolve() for argument in given[:4])
    test = given[4] if len(given) > 4 else ""
    cache.mkdir(parents=True, exist_ok=True)
    apt = packages.Apt(v2_cache)
    packages.install_needed(apt)
    busybox = packages.busybox(apt, v2_cache)
    system = packages.once(cache / "system", lambda new: make_system(new, apt))
    environment = {
        "GUEST_ROOT": system / "root.ext4",
        "GUEST_PROGRAMS": system / "root",
        "VSOCK_DEVICE": vsock_device(tools),
    }
    kernels = {series: packages.kernel(apt, cache, series, MODULES) for series in packages.KERNELS}
    if test == "prepare":
        return
    run_documented("image", system, COFFERDAM=binary)
    with tempfile.TemporaryDirectory(prefix="cofferdam-guests-", dir="/var/tmp") as scratch:
        guests = {}
        for (series, kernel), with_guest in zip(kernels.items(), GUEST_IN_INITRAMFS):
            initrd = Path(scratch) / f"initrd-{series}"
            archive = images.initramfs(kernel, busybox, REPOSITORY / "ci/guests/firecracker/init")
            initrd.write_bytes(archive + guest_init(binary) if with_guest else archive)
            guests[kernel] = {"GUEST_KERNEL": kernel / "vmlinuz", "GUEST_INITRD": initrd}
        # At the same time, since each guest keeps only one processor busy.
        with ThreadPoolExecutor(len(guests)) as pool:
            ended = pool.map(lambda guest: run_tests(environment | guest, test), guests.values())
        failed = [kernel for kernel, tests in zip(guests, ended) if not shows_success(kernel, tests)]
    rig.finish([f"the tests with the guest {kernel.name}" for kernel in failed],
               "every test passed with both guests")


def make_system(new, apt):
    """Makes a folder with the guests' root file system as a directory."""
    rig.say("making the guest's system")
    new.mkdir()
    run_documented("root", new, MIRROR=apt.mirror())


def run_documented(name, place, **variables):
    """Runs the block of the document below the comment `name`, in `place`."""
    block, = re.findall(rf"^<!-- {name} -->\n```\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    environment = {**os.environ, **{key: str(value) for key, value in variables.items()}}
    rig.show([*rig.PRIVATE_MOUNTS, "sh", "-euc", block], cwd=place, env=environment)


def run_tests(environment, test):
    """Runs the tests that use guests, one after the other."""
    command = [os.environ.get("CARGO", "cargo"), "test", "--locked", "--test", "firecracker", "--",
               "--ignored", "--nocapture", "--test-threads=1", "--color=never", f"emulated::{test}"]
    return rig.attempt(command, cwd=REPOSITORY, env={**os.environ, **environment})


def shows_success(kernel, tests):
    """Prints what the tests with this kernel printed; returns whether all of them passed."""
    rig.say((kernel / "version").read_text().strip())
    print(tests.stdout, tests.stderr, sep="", flush=True)
    return tests.returncode == 0


def guest_init(binary):
    """An archive with the guest init, to append to the initramfs."""
    return images.archive(["sbin"], [("sbin/cofferdam-guest", 0o100755, binary.read_bytes())])


def vsock_device(tools):
    """The device's binary, installed if it is missing."""
    binary = tools / "bin" / VSOCK_DEVICE
    if not binary.exists():
        rig.say(f"installing {VSOCK_DEVICE} {VSOCK_DEVICE_VERSION}")
        # Not in the repository, whose .cargo/config.toml is for our own binary.
        rig.show([os.environ.get("CARGO", "cargo"), "install", "--locked", "--root", tools,
                        f"{VSOCK_DEVICE}@{VSOCK_DEVICE_VERSION}"], cwd="/",
                 env={**os.environ, "CARGO_TARGET_DIR": str(tools / "build"),
                      # Compiles faster; the device only forwards bytes.
                      "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1", "CARGO_PROFILE_RELEASE_LTO": "off",
                      "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"})
    return binary


if __name__ == "__main__":
    rig.start(main)
