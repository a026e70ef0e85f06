"""The guest's initramfs: a cpio archive of a busybox, the modules and the first program."""

FOLDERS = ["dev", "root", "modules"]


def initramfs(kernel, busybox, init):
    """The archive, in the form that kernels take ("newc")."""
    entries = [(folder, 0o040755, b"") for folder in FOLDERS]
    entries += [(f"modules/{file.name}", 0o100644, file.read_bytes())
                for file in sorted(kernel.glob("*.ko"))]
    entries += [("busybox", 0o100755, busybox.read_bytes()), ("init", 0o100755, init.read_bytes())]
    archive = b"".join(entry(number, *one) for number, one in enumerate(entries, 1))
    return archive + entry(0, "TRAILER!!!", 0, b"")


def entry(number, name, mode, data):
    name = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    return padded(head + name) + padded(data)


def padded(data):
    return data + bytes(-len(data) % 4)
