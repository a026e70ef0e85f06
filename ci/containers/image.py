"""A container image of a shell, make, their libraries and the binary."""

import io
import shutil
import tarfile
from pathlib import Path

import rig

# The only language: its solutions are scripts for this shell.
LANGUAGES = """\
[shell]
folder = "check"
solution = "solution.sh"
requires = ["sh"]
version = ["sh", "-c", "busybox | head -n 1"]
"""
DIRECTORIES = {"dev": 0o755, "etc": 0o755, "proc": 0o755, "run": 0o755, "sys": 0o755, "tmp": 0o1777}
FILES = {"etc/passwd": "root:x:0:0:root:/:/bin/sh\n", "etc/group": "root:x:0:\n",
         "etc/hosts": "", "etc/nsswitch.conf": "hosts: files\n",
         "langs/languages.toml": LANGUAGES,
         "langs/shell/Makefile": "test:\n\t@sh check/solution.sh\n"}
# Programs that busybox lacks, taken from this machine.
PROGRAMS = ["make", "getent"]


class Image:
    """A tar archive with each name once, since engines refuse duplicates."""

    def __init__(self, path):
        self.tar, self.names = tarfile.open(path, "w"), set()

    def add(self, name, kind, mode=0o755, link="", content=b""):
        if name in self.names:
            return
        for parent in [*reversed(Path(name).parents)][1:]:
            self.add(str(parent), tarfile.DIRTYPE)
        self.names.add(name)
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, link, len(content)
        self.tar.addfile(entry, io.BytesIO(content))

    def add_file(self, name, source):
        self.add(name, tarfile.REGTYPE, content=Path(source).read_bytes())

    def add_program(self, program):
        """Adds a program of this machine, and its libraries at the paths where it looks for them."""
        path = shutil.which(program)
        self.add_file(f"usr/bin/{program}", path)
        for word in rig.run(["ldd", path]).split():
            if word.startswith("/"):
                self.add_file(word.lstrip("/"), word)


def write(path, binary):
    """Writes the image's root as an archive to `path`."""
    image = Image(path)
    for name, mode in DIRECTORIES.items():
        image.add(name, tarfile.DIRTYPE, mode)
    for name, text in FILES.items():
        image.add(name, tarfile.REGTYPE, 0o644, content=text.encode())
    image.add("bin", tarfile.SYMTYPE, link="usr/bin")
    for program in PROGRAMS:
        image.add_program(program)
    busybox = shutil.which("busybox")
    image.add_file("usr/bin/busybox", busybox)
    for applet in rig.run([busybox, "--list"]).split():
        image.add(f"usr/bin/{applet}", tarfile.SYMTYPE, link="busybox")
    image.add_file("usr/local/bin/cofferdam", binary)
    image.tar.close()
