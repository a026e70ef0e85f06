#!/usr/bin/env python3
"""Boots Debian's cloud kernels with every cgroup controller on version 2 and runs privileged tests
there, in each of four scenes: in the root group, in a group delegated to the service, in a group that
looks like the root, as in a container, and in a group delegated to a user without privileges.

    test_v2.py COFFERDAM CACHE [all]

COFFERDAM is the binary that the guests get. CACHE is the folder that keeps the parts of the guests.
`all` runs every scene with every kernel, instead of each with one of them.
QEMU emulates the processor, so KVM is not needed; it is installed where it is missing. Needs Debian,
root and cargo.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import rig
from guests import images, packages
from guests.guest_log import GuestLog
from rig import REPOSITORY

GUEST = REPOSITORY / "ci" / "guests" / "v2"
# More than twice as long as any guest took on a busy machine.
GUEST_SECONDS_MAX = 900
SUITE_SECONDS_MAX = 300
MEMORY_MIB = 1024
DISK_BYTES = 160 << 20
SCENES = ["unified", "delegated", "contained", "rootless"]
# In the short form, each kernel has the scenes that differ most from those of the other.
SHORT = {"6.1": ["unified", "contained"], "6.12": ["unified", "delegated", "rootless"]}
# The test binaries that run in the guests: name, and kind and name of the cargo target.
TESTS = {"lib": ("lib", "cofferdam_sandbox"), "sandbox": ("test", "sandbox"),
         "engine": ("test", "engine")}
# Parts of the names of tests. Those of cgroups run in every scene.
GROUPS = ["cgroup::tests::host::", "cgroup::tests::host_cpu::"]
# How many generated histories of a workspace's file system each guest tries. It takes about 20 times
# as long as the host for each.
GENERATED_CASES = 15
# Those of workspaces' file systems, which cgroups do not matter to. The guests have no loop devices.
LAYERS = ["layers::tests::limits::", "layers::tests::owners::", "layers::tests::sharing::",
          "layers::tests::lifetime::", "layers::tests::hostile::", "layers::tests::generated::"]
SANDBOXES = {
    "unified": ["limits::", "endings::", "crash::"],
    # Here the process that opens a sandbox must be alone in its group, so tests that start themselves
    # again are left out.
    "delegated": ["limits::memory_beyond", "limits::files_in_memory", "limits::fork_fails",
                  "limits::the_cpu_time", "limits::a_limit_too_small", "endings::a_raised_token",
                  "endings::a_child_in_the_background"],
}
SANDBOXES["contained"] = SANDBOXES["delegated"]
# Those of sandboxes that many programs share. The tests run in the root group, and their services in
# the scene.
SHARED = {
    "unified": ["shared::limits::memory_of_all", "shared::limits::what_a_program_left",
                "shared::limits::processes_of_all", "shared::ends::a_time_out",
                "shared::ends::a_fork", "shared::ends::a_killed_service"],
    "delegated": ["shared::limits::memory_of_all"],
    "contained": ["shared::limits::memory_of_all"],
    "rootless": ["shared::limits::memory_of_all", "shared::ends::a_service_that_ends"],
}
SERVICE = ["a_right_solution", "a_memory_hog", "a_fork_bomb", "an_endless_loop", "checks_and_evaluations",
           "sigterm"]


def main():
    binary, cache, *form = rig.arguments(__doc__, 2, 3)
    binary, cache = Path(binary).resolve(), Path(cache).resolve()
    if form not in ([], ["all"]):
        rig.fail(__doc__)
    rig.require_root("it installs QEMU and makes the guest's system")
    cache.mkdir(parents=True, exist_ok=True)
    tests = test_binaries()
    apt = packages.Apt(cache)
    packages.install_needed(apt)
    parts = {"busybox": packages.busybox(apt, cache), "root": packages.root(apt, cache)}
    kernels = {series: packages.kernel(apt, cache, series) for series in packages.KERNELS}
    scenes = {series: SCENES if form else SHORT[series] for series in kernels}
    with tempfile.TemporaryDirectory(prefix="cofferdam-v2-", dir="/var/tmp") as scratch:
        scratch = Path(scratch)
        disk = test_disk(scratch, binary, tests, parts["busybox"], scenes)
        guests = [Guest(series, kernel, scenes[series], parts, disk, scratch)
                  for series, kernel in kernels.items()]
        run(guests)
        faults = [fault for guest in guests for fault in judge(guest)]
    rig.finish(faults, "every suite passed in every scene")


def test_binaries():
    """Builds the test binaries; returns their paths by name."""
    built = rig.run(
        [os.environ.get("CARGO", "cargo"), "test", "--locked", "--no-run", "--package", "cofferdam",
         "--package", "cofferdam-sandbox", "--lib", "--test", "sandbox", "--test", "engine",
         "--message-format=json"],
        cwd=REPOSITORY, stderr=None)
    messages = map(json.loads, built.splitlines())
    found = {(message["target"]["kind"][0], message["target"]["name"]): Path(message["executable"])
             for message in messages
             if message["reason"] == "compiler-artifact" and message["executable"]}
    return {name: found[target] for name, target in TESTS.items()}


def suites(scenes):
    """Scene, name and command of each suite in a guest, and the tests that must pass in it."""
    for scene in scenes:
        enter = f"/mnt/guest/enter {scene}"
        options = "--test-threads=1 --color=never"
        shared = f"env COFFERDAM_BIN=/mnt/in/{scene} /mnt/tests/engine"
        yield scene, "engine", f"{shared} {' '.join(SHARED[scene])} {options}", SHARED[scene]
        if scene == "rootless":
            # Only sandboxes that programs share need more there than a user has anywhere.
            continue
        yield scene, "doctor", f"{enter} /mnt/cofferdam doctor --json", []
        groups = GROUPS + (LAYERS if scene == "unified" else [])
        for suite, names in [("lib", groups), ("sandbox", SANDBOXES[scene])]:
            command = f"/mnt/tests/{suite} {' '.join(names)} {options}"
            yield scene, suite, f"{enter} env GENERATED_CASES={GENERATED_CASES} {command}", names
        yield scene, "service", f"python3 /mnt/guest/ask.py {scene}", SERVICE


def test_disk(scratch, binary, tests, busybox, scenes):
    """An ext4 image with the binaries under test and the guest's programs."""
    tree = scratch / "tree"
    (tree / "tests").mkdir(parents=True)
    for name, built in tests.items():
        rig.run(["strip", "-o", tree / "tests" / name, built])
    shutil.copy(binary, tree / "cofferdam")
    shutil.copy(busybox, tree / "busybox")
    shutil.copytree(GUEST, tree / "guest")
    shutil.copy(rig.__file__, tree / "guest")
    shutil.copytree(REPOSITORY / "langs", tree / "langs",
                    ignore=shutil.ignore_patterns("toolchains", "node_modules"))
    (tree / "in").mkdir()
    for scene in SCENES:
        # The service in a scene, as one program.
        program = tree / "in" / scene
        program.write_text(f'#!/bin/sh\nexec /mnt/guest/enter {scene} /mnt/cofferdam "$@"\n')
        program.chmod(0o755)
    for series, of_kernel in scenes.items():
        lines = [f"{scene} {suite} {SUITE_SECONDS_MAX} {command}\n"
                 for scene, suite, command, _ in suites(of_kernel)]
        (tree / f"suites-{series}").write_text("".join(lines))
    images.ext4(scratch / "tests.ext4", tree, DISK_BYTES)
    return scratch / "tests.ext4"


class Guest:
    """A guest with one kernel, which runs every suite of its scenes and shuts down."""

    def __init__(self, series, kernel, scenes, parts, disk, scratch):
        self.scenes = scenes
        self.series, self.version = series, (kernel / "version").read_text().strip()
        self.log, self.console = scratch / f"log-{series}", scratch / f"console-{series}"
        self.log.touch()
        self.console.touch()
        initrd = scratch / f"initrd-{series}"
        initrd.write_bytes(images.initramfs(kernel, parts["busybox"], GUEST / "init"))
        self.command = [
            packages.QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
            "-m", str(MEMORY_MIB), "-nodefaults", "-display", "none", "-no-reboot", "-nic", "none",
            "-serial", f"file:{self.console}", "-serial", f"file:{self.log}",
            "-kernel", kernel / "vmlinuz", "-initrd", initrd,
            "-append", f"console=ttyS0 quiet panic=-1 cgroup_no_v1=all suites={series}",
            "-drive", f"file={parts['root']},format=raw,if=virtio,snapshot=on",
            "-drive", f"file={disk},format=raw,if=virtio,readonly=on",
        ]
        self.process, self.took = None, None

    def read_log(self):
        return GuestLog(*(path.read_text(errors="replace") for path in [self.log, self.console]))


def run(guests):
    """Runs the guests at the same time, since each keeps only one processor busy, and notes how long
    each took. The log of a guest that is killed at the deadline is incomplete, which is a fault."""
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
    """Prints the results of a guest; returns what is wrong."""
    log = guest.read_log()
    rig.say(guest.version)
    log.show(guest.series, guest.took)
    faults = [f"{guest.series}: {fault}" for fault in
              log.faults((scene, suite, names) for scene, suite, _, names in suites(guest.scenes))]
    if faults:
        print(log.text, log.console[-5000:], sep="\n", flush=True)
    return faults


if __name__ == "__main__":
    rig.start(main)
