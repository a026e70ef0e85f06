"""Looks for the kernel's other file systems, especially control groups, and tries to write to them."""

import errno
import os

PLACES = [
    "/sys", "/sys/fs/cgroup", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/tracing",
    "/sys/kernel/security", "/sys/kernel/config", "/sys/fs/fuse/connections", "/sys/firmware",
    "/cgroup", "/dev/cgroup", "/dev/hugepages", "/dev/mapper", "/dev/fuse", "/dev/kmsg", "/dev/mem",
    "/dev/port", "/dev/kvm", "/dev/vsock", "/dev/net/tun", "/dev/loop-control", "/dev/vda", "/dev/sda",
]
CONTROL = (
    "cgroup.procs", "cgroup.threads", "tasks", "release_agent", "notify_on_release", "memory.max",
    "pids.max", "memory.limit_in_bytes", "cpu.max", "cgroup.kill", "cgroup.subtree_control",
)
WRITES = ("/sys/power/state", "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run",
          "/sys/module/kernel/parameters/crash_kexec_post_notifiers")


def look(path):
    # An empty directory shows nothing either.
    if os.path.isdir(path) and not os.listdir(path):
        raise FileNotFoundError(errno.ENOENT, path)
    os.close(os.open(path, os.O_RDONLY))


def open_to_write(path):
    os.close(os.open(path, os.O_WRONLY))


def mounted():
    """The kinds of mounted file systems."""
    with open("/proc/self/mountinfo") as file:
        lines = [line.split() for line in file]
    return sorted({line[line.index("-") + 1] for line in lines})


def own_groups():
    """The paths of this process's groups and their ancestors, if they were mounted."""
    with open("/proc/self/cgroup") as file:
        lines = [line.strip().split(":", 2) for line in file]
    tops = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
    tops += [f"/sys/fs/cgroup/{names}" for _, names, _ in lines if names]
    return sorted({f"{top}{up}{path}" for top in tops for up in ("", "/..") for *_, path in lines})


def controls():
    """Files that control a group, in every directory where one could be mounted."""
    found = []
    for top in ("/sys", "/dev", "/run", "/tmp", "/var", "/workspace"):
        for parent, _, files in os.walk(top):
            found += [os.path.join(parent, name) for name in files if name in CONTROL]
    return found


def probe():
    groups = own_groups()
    with open("/tmp/tasks", "w"):
        pass  # So that a search which finds nothing else is known to find.
    return {
        "places": {path: answer(look, path) for path in PLACES},
        "groups": {path: answer(os.mkdir, f"{path}/left-behind") for path in groups},
        "writes": {
            path: answer(open_to_write, path)
            for path in [f"{group}/{name}" for group in groups for name in CONTROL] + list(WRITES)
        },
        "controls": controls(),
        "mounted": mounted(),
    }
