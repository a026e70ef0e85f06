"""Makes a tree of everything that must come back harmless, or not at all, when it is saved and restored.
Tries set-id bits, devices, owners and attributes by every call that takes them."""
import ctypes, os, stat, sys
outside = sys.argv[1]
os.chdir("/workspace/work")
def attempt(call, *args):
    try: call(*args)
    except OSError: pass
libc = ctypes.CDLL(None)
def file(name):
    with open(name, "w") as made: made.write(str(name))
    return name
for bits in (0o4755, 0o2755, 0o6777, 0o7777):
    name = "%o" % bits
    attempt(os.chmod, file("chmod" + name), bits)
    with open(file("fchmod" + name)) as made: attempt(os.fchmod, made.fileno(), bits)
    os.umask(0)
    attempt(lambda: os.close(os.open("open" + name, os.O_CREAT | os.O_WRONLY, bits)))
    libc.syscall(85, b"creat" + name.encode(), bits)
    attempt(os.mkdir, "mkdir" + name, bits)
    attempt(os.mknod, "mknod" + name, stat.S_IFREG | bits)
    attempt(os.mkfifo, "fifo" + name, bits)
    libc.syscall(452, -100, file("fchmodat2" + name).encode(), bits, 0)
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, bits, 0)
    libc.syscall(437, -100, b"openat2" + name.encode(), how, 24)
    os.umask(0o22)
for kind in (stat.S_IFCHR, stat.S_IFBLK):
    for device in ((1, 3), (8, 0), (0, 0)):
        attempt(os.mknod, "node%d.%d.%d" % (kind, *device), kind | 0o666, os.makedev(*device))
for owner in (0, 1, 65534): attempt(os.chown, file("own%d" % owner), owner, owner)
for key in ("security.capability", "trusted.overlay.opaque", "user.overlay.opaque", "user.overlay.whiteout"):
    attempt(os.setxattr, file(key), key, b"y")
for name, to in (("secret", outside + "/sentinel"), ("dir", outside), ("up", "../../../.."), ("root", "/proc/self/root")):
    os.symlink(to, name)
for name in (b"\xff\xfe", b"a\nb", b".restored-1", b"-rf", b"x" * 255): file(name)
os.link(".restored-1", "hard1"); os.link(b"\xff\xfe", b"hard2"); attempt(os.link, "hard1", "/tmp/hard3")
with open("sparse", "wb") as made: made.truncate(1 << 30); made.seek(1 << 29); made.write(b"x")
with open("/tmp/kept", "w") as made: made.write("kept\n")
os.mkdir("unreadable"); file("unreadable/x"); os.chmod("unreadable/x", 0); os.chmod("unreadable", 0)
os.mkdir("sticky"); os.chmod("sticky", 0o1777)
print("made")
