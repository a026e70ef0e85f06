"""File system images for the guests: the initramfs and ext4."""

import rig

FOLDERS = ["dev", "root", "modules"]


def initramfs(kernel, busybox, init):
    """A cpio archive in the kernel's "newc" format: busybox, the modules and the first program."""
    files = [(f"modules/{file.name}", 0o100644, file.read_bytes()) for file in sorted(kernel.glob("*.ko"))]
    files += [("busybox", 0o100755, busybox.read_bytes()), ("init", 0o100755, init.read_bytes())]
    return archive(FOLDERS, files)


def archive(folders, files):
    """A cpio archive. The kernel unpacks several of them one after the other."""
    entries = [(folder, 0o040755, b"") for folder in folders] + files
    packed = b"".join(entry(number, *fields) for number, fields in enumerate(entries, 1))
    return packed + entry(0, "TRAILER!!!", 0, b"")


def entry(number, name, mode, data):
    name = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields)
    return padded(head + name) + padded(data)


def padded(data):
    return data + bytes(-len(data) % 4)


def ext4(path, tree, size):
    """Writes an ext4 file system with the content of `tree`."""
    with open(path, "wb") as file:
        file.truncate(size)
    rig.run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", tree, path])
