#!/usr/bin/env python3
"""Runs the backend `firecracker` against real guests under QEMU: Debian's cloud kernels with our
binary as their first program, by way of the device that gives QEMU Firecracker's socket.

    test.py COFFERDAM CACHE V2_CACHE TOOLS [TEST]

COFFERDAM is the binary that guests get. CACHE and V2_CACHE keep what they are made of; the second is
that of tests/v2, whose busybox is used. TOOLS is where the vsock device is installed. The root image
is made by the commands of docs/firecracker.md. Of the tests, those are run whose names hold TEST.
QEMU emulates the processor, so no KVM is needed. Root, Debian and cargo are all that is counted on.
Python 3.11, standard library only.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "v2"))
import packages
from initramfs import entry, initramfs

VSOCK_DEVICE = "vhost-device-vsock"
VSOCK_DEVICE_VERSION = "0.3.0"
DOCUMENT = REPOSITORY / "docs" / "firecracker.md"
# For each kernel, whether its guest's first program comes with the initramfs; else the root image,
# which has it too, is the root before it is started.
GUEST_IN_INITRAMFS = [True, False]
# What the guest of the backend loads beside that of tests/v2.
MODULES = ["vmw_vsock_virtio_transport"]


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    if os.getuid() != 0:
        sys.exit("firecracker: only root can install QEMU and make the guest's system")
    binary, cache, v2_cache, tools = (Path(argument).resolve() for argument in sys.argv[1:5])
    test = sys.argv[5] if len(sys.argv) > 5 else ""
    cache.mkdir(parents=True, exist_ok=True)
    apt = packages.Apt(v2_cache)
    packages.install_needed(apt)
    packages.MODULES = packages.MODULES + MODULES
    busybox = packages.busybox(apt, v2_cache)
    system = packages.once(cache / "system", lambda new: make_system(new, apt))
    documented("image", system, COFFERDAM=binary)
    environment = {
        "GUEST_ROOT": system / "root.ext4",
        "GUEST_PROGRAMS": system / "root",
        "VSOCK_DEVICE": vsock_device(tools),
    }
    failed = []
    with tempfile.TemporaryDirectory(prefix="cofferdam-guests-", dir="/var/tmp") as scratch:
        for series, with_guest in zip(packages.KERNELS, GUEST_IN_INITRAMFS):
            kernel = packages.kernel(apt, cache, series)
            initrd = Path(scratch) / f"initrd-{series}"
            archive = initramfs(kernel, busybox, HERE / "guest" / "init")
            initrd.write_bytes(archive + guest(binary) if with_guest else archive)
            print(f"firecracker: {(kernel / 'version').read_text().strip()}", flush=True)
            environment |= {"GUEST_KERNEL": kernel / "vmlinuz", "GUEST_INITRD": initrd}
            if run(environment, test) != 0:
                failed.append(series)
    if failed:
        sys.exit(f"firecracker: NOT as it should be: {' '.join(failed)}")
    print("firecracker: all of it holds")


def make_system(new, apt):
    """A folder with the root of the guests, as a directory."""
    print("firecracker: making the guest's system", flush=True)
    new.mkdir()
    documented("root", new, MIRROR=apt.mirror())


def documented(name, place, **variables):
    """Runs the block of the document that has this name above it, in `place`."""
    block, = re.findall(rf"^<!-- {name} -->\n```\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    environment = {**os.environ, **{key: str(value) for key, value in variables.items()}}
    # As in tests/v2: what is mounted meanwhile is mounted for these commands alone.
    subprocess.run([*packages.PRIVATE, "sh", "-euc", block], cwd=place, env=environment, check=True,
                   stdin=subprocess.DEVNULL)


def run(environment, test):
    """The tests in guests, one after the other."""
    command = [os.environ.get("CARGO", "cargo"), "test", "--locked", "--test", "firecracker", "--",
               "--ignored", "--nocapture", "--test-threads=1", "--color=never", f"emulated::{test}"]
    return subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **environment},
                          stdin=subprocess.DEVNULL).returncode


def guest(binary):
    """An archive that follows the first in the initramfs: the guest's first program."""
    return (entry(1, "sbin", 0o040755, b"") +
            entry(2, "sbin/cofferdam-guest", 0o100755, binary.read_bytes()) +
            entry(0, "TRAILER!!!", 0, b""))


def vsock_device(tools):
    """The binary of the device, installed where it is missing."""
    binary = tools / "bin" / VSOCK_DEVICE
    if not binary.exists():
        print(f"firecracker: installing {VSOCK_DEVICE} {VSOCK_DEVICE_VERSION}", flush=True)
        # Outside of the repository, whose settings are for our own binary.
        subprocess.run([os.environ.get("CARGO", "cargo"), "install", "--locked", "--root", tools,
                        f"{VSOCK_DEVICE}@{VSOCK_DEVICE_VERSION}"], cwd="/", check=True,
                       stdin=subprocess.DEVNULL,
                       env={**os.environ, "CARGO_TARGET_DIR": str(tools / "build")})
    return binary


if __name__ == "__main__":
    main()
