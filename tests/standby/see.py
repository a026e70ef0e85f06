# Prints everything that a program in a sandbox can see, except times, counters and numbers that
# differ between any two sandboxes.
import ctypes, os, re, resource, socket, stat, sys

numbers = {}

def nth(kind, number):
    """The same name for the same number, by the order in which they turn up."""
    known = numbers.setdefault(kind, {})
    return kind + str(known.setdefault(number, len(known)))

def show(what, *lines):
    for line in lines:
        print(what + ":", str(line).replace("\t", " "))

def text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as error:
        return error.strerror

def tried(what, call):
    try:
        show(what, call())
    except OSError as error:
        show(what, error.strerror)

# Printed first, because output changes it too.
io = text("/proc/self/io").splitlines()
show("io", *[line for line in io if line.startswith(("wchar", "syscw", "write", "cancelled"))])

libc = ctypes.CDLL(None, use_errno=True)
mask = os.umask(0o22)
show("ids", os.getresuid(), os.getresgid(), os.getgroups(), oct(mask), os.getcwd())
show("process", os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0))
show("scheduling", os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
show("cpus", sorted(os.sched_getaffinity(0)))
show("ioprio", libc.syscall({"x86_64": 252}.get(os.uname().machine, 31), 1, 0))
stable = ("policy", "prio", "se.slice", "se.load.weight")
show("sched", *[line for line in text("/proc/self/sched").splitlines() if line.startswith(stable)])
varies = ("Vm", "Rss", "voluntary", "nonvoluntary", "HugetlbPages")
# If init is the host's root, its signals are counted with those of every root process. Whether it has fallen asleep
# again by now, and which signals wait for it until then, is chance. Its table of descriptors is as large as that of the
# service when it began.
of_init = ("SigQ", "State", "SigPnd", "ShdPnd", "FDSize")
for pid in ("1", "self"):
    lines = text(f"/proc/{pid}/status").splitlines()
    show(f"status {pid}", *[line for line in lines if
                             not line.startswith(varies + (of_init if pid == "1" else ()))])
    for name in ("uid_map", "gid_map"):
        inside, host, count = text(f"/proc/{pid}/{name}").split()
        show(f"{name} {pid}", inside, nth("host id", host), count)
    # Where init sleeps, if it does, is chance too.
    momentary = () if pid == "1" else ("wchan", "syscall")
    for name in ("cgroup", "limits", "oom_score_adj", "setgroups", "comm",
                 "timerslack_ns", "personality", "loginuid", "sessionid", "coredump_filter",
                 "cpuset", "attr/current", "environ", "cmdline", "root", *momentary):
        # Only the number of the running call: the rest are addresses.
        found = text(f"/proc/{pid}/{name}")
        show(f"{name} {pid}", *(found.split()[:1] if name == "syscall" else found.splitlines()))
    show(f"autogroup {pid}", re.sub("[0-9]+", "N", text(f"/proc/{pid}/autogroup")))
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        show(name, resource.getrlimit(getattr(resource, name)))
# Dumpable, keep capabilities, seccomp, death signal, securebits, timer slack, subreaper, no new
# privileges, speculation.
for option in (3, 7, 21, 27, 30, 37, 39, 42, 52):
    show(f"prctl {option}", libc.prctl(option, 0, 0, 0, 0), ctypes.get_errno())
died = ctypes.c_int(-1)
show("death signal", libc.prctl(2, ctypes.byref(died), 0, 0, 0), died.value)

# Of the flags of a process those that last: not executed since fork, privileges used, too many processes of the user,
# of the kernel, random addresses, bound to processors. Others say what it does at the moment.
lasting = 0x40 | 0x100 | 0x1000 | 0x200000 | 0x400000 | 0x4000000
for pid in sorted(name for name in os.listdir("/proc") if name.isdigit()):
    # Parent, group, session, terminal, flags; threads, priority, nice.
    fields = text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    flags = int(fields[6]) & lasting if len(fields) > 6 else None
    show(f"process {pid}", text(f"/proc/{pid}/cmdline").split("\0"), fields[1:6], flags, fields[15:19])
    tried(f"descriptors of {pid}", lambda: sorted(os.listdir(f"/proc/{pid}/fd")))
for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
    try:
        found = os.fstat(fd)
    except OSError:
        continue  # Of the listing itself.
    link = re.sub("[0-9]+", "N", os.readlink(f"/proc/self/fd/{fd}"))
    flags = [line for line in text(f"/proc/self/fdinfo/{fd}").splitlines() if "flags" in line]
    show(f"descriptor {fd}", link, flags, oct(found.st_mode), found.st_uid, found.st_gid)
for name in sorted(os.listdir("/proc/self/ns")):
    show(f"namespace {name}", nth("ns", os.readlink(f"/proc/self/ns/{name}")))
    tried(f"init's {name}", lambda: nth("ns", os.readlink(f"/proc/1/ns/{name}")))

for line in text("/proc/self/mountinfo").splitlines():
    mount, parent, device, rest = line.split(" ", 3)
    if device.startswith("0:"):
        device = nth("device", device)
    show("mount", f"{nth('mount', mount)} {nth('mount', parent)} {device} {rest}")
for place in ("/", "/workspace", "/tmp", "/dev/shm"):
    fs = os.statvfs(place)
    show(f"space in {place}", fs.f_bsize, fs.f_blocks, fs.f_bfree, fs.f_files, fs.f_ffree, fs.f_flag)

def entry(path):
    found = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    content = ""
    if stat.S_ISREG(found.st_mode) and path.startswith("/workspace"):
        content = hash_of(path)
    xattrs = os.listxattr(path, follow_symlinks=False)
    # The link count of the process directory counts them, and those of the host too.
    links = "" if path == "/proc" else found.st_nlink
    show("entry", [path, oct(found.st_mode), found.st_uid, found.st_gid, links, size,
                   found.st_rdev, link, content, xattrs])

def hash_of(path):
    with open(path, "rb") as file:
        total = 0
        for byte in file.read():
            total = (total * 31 + byte) % (1 << 64)
        return total

for name in sorted(os.listdir("/")):
    entry("/" + name)
for top in ("/workspace", "/tmp", "/dev"):
    for directory, directories, files in os.walk(top):
        directories.sort()
        for name in sorted(files) + directories:
            entry(os.path.join(directory, name))

show("environment", *sorted(f"{name}={value}" for name, value in os.environ.items()))
show("host", socket.gethostname(), os.uname()[:3])
tried("interfaces", socket.if_nameindex)
for name in ("net/dev", "net/tcp", "net/udp", "net/route", "sysvipc/shm", "sysvipc/sem",
             "sysvipc/msg", "sys/user/max_user_namespaces", "sys/kernel/ns_last_pid",
             "sys/kernel/shmmax", "sys/net/ipv4/ip_forward", "sys/fs/mqueue/msg_max"):
    show(name, *text(f"/proc/{name}").splitlines())
show("unix sockets", len(text("/proc/net/unix").splitlines()))
sys.stdout.flush()
