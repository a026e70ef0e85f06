"""Runs the program that crashes in every way, and looks for core files."""

import os
import subprocess


def probe():
    done = subprocess.run(["/tmp/probe"], capture_output=True, timeout=15)
    left = []
    for top in ("/workspace", "/tmp", "/var/tmp", "/dev/shm", "/run"):
        for parent, _, files in os.walk(top):
            left += [os.path.join(parent, name) for name in files if "core" in name.lower()]
    with open("/proc/sys/kernel/core_pattern") as file:
        pattern = file.read()
    return {"code": done.returncode, "out": done.stdout.decode(), "left": left, "pattern": pattern}
