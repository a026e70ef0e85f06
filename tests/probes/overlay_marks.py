"""Makes everything that an overlay file system could take for its own marks, in every directory; prints
what the kernel let it make."""
import ctypes, errno, os, stat
libc = ctypes.CDLL(None, use_errno=True)
made = []
def attempt(name, call):
    try:
        call(); made.append(name)
    except OSError: pass
for place in ("work/d", "work/d/e", "/tmp/d", "."):
    os.makedirs(place, exist_ok=True)
    for name in ("kept", "hidden"): open(os.path.join(place, name), "w").write(place)
for place in ("work/d", "work/d/e", "/tmp/d", "."):
    for space in ("user", "trusted", "security"):
        for mark, value in (("opaque", b"y"), ("opaque", b"x"), ("whiteout", b"y"), ("redirect", b"/../../etc"),
                ("redirect", b"/"), ("metacopy", b""), ("origin", b"\0" * 30), ("impure", b"y"), ("nlink", b"U+9"),
                ("whiteouts", b"y"), ("protattr", b"i")):
            for path in (place, os.path.join(place, "kept")):
                key = "%s.overlay.%s" % (space, mark)
                attempt(space, lambda: os.setxattr(path, key, value))
                attempt("escaped " + space, lambda: os.setxattr(path, key.replace("overlay", "overlay.overlay"), value))
    attempt("whiteout", lambda: os.mknod(os.path.join(place, "white"), stat.S_IFCHR | 0o600, 0))
    attempt("device", lambda: os.mknod(os.path.join(place, "null"), stat.S_IFCHR | 0o600, os.makedev(1, 3)))
    for name in (".wh.kept", ".wh..wh..opq", "#1", "work", "u", "w"):
        attempt("name", lambda: open(os.path.join(place, name), "x").close())
    old, new = os.path.join(place, "hidden").encode(), os.path.join(place, "moved").encode()
    if libc.renameat2(-100, old, -100, new, 4) == 0: made.append("whiteout")
print("made", *sorted(set(made)))
