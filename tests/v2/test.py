#!/usr/bin/env python3
"""Boots Debian's cloud kernels with every cgroup controller on version 2 and runs the privileged
tests there, in each of three scenes: in the root group, in a group delegated to the service, and
in one that a container shows as the root.

    test.py COFFERDAM CACHE

COFFERDAM is the binary that the guests get, CACHE the folder that keeps what they are made of.
QEMU emulates the processor, so no KVM is needed; it is installed where it is missing. Root, Debian
and cargo are all that is counted on. Python 3.11, standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
import packages
from guest_log import GuestLog
from initramfs import initramfs

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
# More than twice as long as any guest has taken on a busy machine.
GUEST_SECONDS_MAX = 900
SUITE_SECONDS_MAX = 300
MEMORY_MIB = 1024
DISK_BYTES = 96 << 20
SCENES = ["unified", "delegated", "contained"]
# Parts of the names of tests; those of a box's groups run in every scene.
GROUPS = ["cgroup::tests::host::", "cgroup::tests::host_cpu::"]
BOXES = {
    "unified": ["limits::", "endings::", "crash::"],
    # Where the process that opens a sandbox has to be alone in its group, none that starts itself anew.
    "delegated": ["limits::memory_beyond", "limits::files_in_memory", "limits::fork_fails",
                  "limits::the_cpu_time", "limits::a_limit_too_small", "endings::a_raised_token",
                  "endings::a_child_in_the_background"],
}
BOXES["contained"] = BOXES["delegated"]
SERVICE = ["a_right_solution", "a_memory_hog", "a_fork_bomb", "a_loop_without_end", "sigterm"]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if os.getuid() != 0:
        sys.exit("v2: only root can install QEMU and make the guest's system")
    binary, cache = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    tests = test_binaries()
    apt = packages.Apt(cache)
    packages.install_needed(apt)
    parts = {"busybox": packages.busybox(apt, cache), "root": packages.root(apt, cache)}
    kernels = {series: packages.kernel(apt, cache, series) for series in packages.KERNELS}
    with tempfile.TemporaryDirectory(prefix="cofferdam-v2-", dir="/var/tmp") as scratch:
        scratch = Path(scratch)
        disk = test_disk(scratch, binary, tests, parts["busybox"])
        guests = [Guest(series, kernel, parts, disk, scratch) for series, kernel in kernels.items()]
        run(guests)
        faults = [fault for guest in guests for fault in judge(guest)]
    if faults:
        sys.exit("\n".join(["v2: NOT as it should be:", *faults]))
    print("v2: all of it holds")


def test_binaries():
    """The built tests, by the name of their target."""
    built = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "test", "--locked", "--no-run", "--package", "cofferdam", "--package", "cofferdam-sandbox", "--lib", "--test", "sandbox",
         "--message-format=json"], cwd=REPOSITORY, check=True, text=True, stdout=subprocess.PIPE)
    messages = map(json.loads, built.stdout.splitlines())
    found = {(message["target"]["kind"][0], message["target"]["name"]): Path(message["executable"])
             for message in messages
             if message["reason"] == "compiler-artifact" and message["executable"]}
    return {"lib": found["lib", "cofferdam_sandbox"], "sandbox": found["test", "sandbox"]}


def suites():
    """Scene, name and command of all that runs in a guest, and the tests that are to pass there."""
    for scene in SCENES:
        enter = f"/mnt/guest/enter {scene}"
        options = "--test-threads=1 --color=never"
        for suite, names in [("lib", GROUPS), ("sandbox", BOXES[scene])]:
            yield scene, suite, f"{enter} /mnt/tests/{suite} {' '.join(names)} {options}", names
        yield scene, "doctor", f"{enter} /mnt/cofferdam doctor --json", []
        yield scene, "service", f"python3 /mnt/guest/ask.py {scene}", SERVICE


def test_disk(scratch, binary, tests, busybox):
    """An ext4 image of what is tested, and of what the guest does with it."""
    tree = scratch / "tree"
    (tree / "tests").mkdir(parents=True)
    for name, built in tests.items():
        subprocess.run(["strip", "-o", tree / "tests" / name, built], check=True)
    shutil.copy(binary, tree / "cofferdam")
    shutil.copy(busybox, tree / "busybox")
    shutil.copytree(HERE / "guest", tree / "guest")
    shutil.copytree(REPOSITORY / "langs", tree / "langs",
                    ignore=shutil.ignore_patterns("toolchains", "node_modules"))
    lines = [f"{scene} {suite} {SUITE_SECONDS_MAX} {command}\n"
             for scene, suite, command, _ in suites()]
    (tree / "suites").write_text("".join(lines))
    packages.image(scratch / "tests.ext4", tree, DISK_BYTES)
    return scratch / "tests.ext4"


class Guest:
    """One kernel, which runs everything when it is started."""

    def __init__(self, series, kernel, parts, disk, scratch):
        self.series, self.version = series, (kernel / "version").read_text().strip()
        self.log, self.console = scratch / f"log-{series}", scratch / f"console-{series}"
        self.log.touch()
        self.console.touch()
        initrd = scratch / f"initrd-{series}"
        initrd.write_bytes(initramfs(kernel, parts["busybox"], HERE / "guest" / "init"))
        self.command = [
            packages.QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
            "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-no-reboot", "-nic", "none",
            "-serial", f"file:{self.console}", "-serial", f"file:{self.log}",
            "-kernel", kernel / "vmlinuz", "-initrd", initrd,
            "-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all",
            "-drive", f"file={parts['root']},format=raw,if=virtio,snapshot=on",
            "-drive", f"file={disk},format=raw,if=virtio,readonly=on",
        ]
        self.process, self.took = None, None

    def told(self):
        """What came of it."""
        return GuestLog(*(path.read_text(errors="replace") for path in [self.log, self.console]))


def run(guests):
    """Runs them side by side, for nearly all of it keeps one processor of a guest busy; notes how
    long each took. One that takes too long has not told all that is asked of it."""
    began = time.monotonic()
    try:
        for guest in guests:
            guest.process = subprocess.Popen(guest.command, stdin=subprocess.DEVNULL)
        while any(guest.took is None for guest in guests):
            seconds = time.monotonic() - began
            for guest in guests:
                over = guest.process.poll() is not None or seconds > GUEST_SECONDS_MAX
                if guest.took is None and over:
                    guest.took = seconds
            time.sleep(0.2)
    finally:
        for guest in guests:
            if guest.process:
                guest.process.kill()
                guest.process.wait()


def judge(guest):
    """Shows what came of a guest; what is wrong with it, in words."""
    told = guest.told()
    print(f"v2: {guest.version}")
    told.show(guest.series, guest.took)
    faults = [f"{guest.series}: {fault}" for fault in
              told.faults((scene, suite, names) for scene, suite, _, names in suites())]
    if faults:
        print(told.text, told.console[-5000:], sep="\n", flush=True)
    return faults


if __name__ == "__main__":
    # So that a signal still leads through what tidies up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
