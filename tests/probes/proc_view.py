"""What /proc shows of other processes and the host, and what can be written there."""

import errno
import os


def refusal(attempt, *args):
    try:
        return attempt(*args) or "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def read(path):
    with open(path, "rb", buffering=0) as file:
        return "ok" if file.read(64) else "empty"


def open_to_write(path):
    # Only opened: writing to some of these has effects.
    file = os.open(path, os.O_WRONLY)
    try:
        # Paths masked by /dev/null are writable like it.
        if os.path.samestat(os.fstat(file), os.stat("/dev/null")):
            raise PermissionError(errno.EACCES, path)
    finally:
        os.close(file)


def owners():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as file:
                lines = [line for line in file if line.startswith("Uid:")]
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found[pid] = {"uids": sorted(set(lines[0].split()[1:])), "words": words}
    return found


def files_below(top):
    for parent, _, files in os.walk(top):
        yield from (os.path.join(parent, name) for name in files)


def system_files():
    """All of /proc except the process directories."""
    for entry in os.listdir("/proc"):
        path = f"/proc/{entry}"
        if entry.isdigit() or os.path.islink(path):
            continue
        yield from files_below(path) if os.path.isdir(path) else [path]


def text(path):
    with open(path, errors="replace") as file:
        return file.read()


def addresses(name):
    """Whether any address shows: without one, each line starts with zeros."""
    try:
        starts = [line.split()[0] for line in text(f"/proc/{name}").splitlines()]
    except OSError:
        return "none"
    return "some" if set("".join(starts)) - set("0-") else "none"


SECRETS = (
    "kcore", "kmsg", "keys", "key-users", "timer_list", "sched_debug", "slabinfo", "vmallocinfo",
    "pagetypeinfo", "kpagecount", "kpageflags", "kpagecgroup", "mtrr",
    "cmdline", "config.gz", "iomem", "diskstats", "partitions", "interrupts", "modules",
    "sys/kernel/random/boot_id",
)
# Files that runtimes read, and the sources of unique identifiers.
NEEDED = (
    "meminfo", "stat", "cpuinfo", "loadavg", "uptime", "version", "filesystems", "vmstat",
    "sys/kernel/osrelease", "sys/kernel/random/uuid", "sys/kernel/pid_max", "sys/vm/max_map_count",
    "sys/vm/overcommit_memory", "sys/net/core/somaxconn", "self/cgroup",
)
OF_INIT = (
    "environ", "mem", "maps", "smaps", "auxv", "stack", "syscall", "personality", "io", "pagemap",
    "root", "cwd", "exe", "fd", "fdinfo", "map_files", "ns/pid", "timerslack_ns",
)


def look_into_init(name):
    path = f"/proc/1/{name}"
    if os.path.islink(path):
        os.readlink(path)
        return "ok"
    return os.listdir(path) and "ok" if os.path.isdir(path) else read(path)


def probe():
    writable = sorted(set(system_files()))
    return {
        "processes": owners(),
        "secrets": {name: refusal(read, f"/proc/{name}") for name in SECRETS},
        "needed": {name: refusal(read, f"/proc/{name}") for name in NEEDED},
        "addresses": {name: addresses(name) for name in ("kallsyms", "iomem", "ioports")},
        "tried_to_write": len(writable),
        "writable": [path for path in writable if refusal(open_to_write, path) == "ok"],
        "init": {name: refusal(look_into_init, name) for name in OF_INIT},
        "write_init": {
            name: refusal(open_to_write, f"/proc/1/{name}")
            for name in ("mem", "oom_score_adj", "coredump_filter", "clear_refs", "comm", "attr/current")
        },
        "cgroups": sorted({line.rsplit(":", 1)[1] for line in text("/proc/self/cgroup").splitlines()}),
        "outside": [str(pid) for pid in range(1, 4000) if os.path.exists(f"/proc/{pid}/status")],
        "mounts": text("/proc/self/mountinfo"),
        "own": read("/proc/self/maps"),
    }
