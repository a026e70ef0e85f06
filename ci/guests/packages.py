"""The parts of a guest, downloaded from Debian once and kept: two kernels, a busybox, a root file
system. None of them is installed on this machine. QEMU is, where it is missing.
"""

import lzma
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import rig

from . import images

SUITE = "bookworm"
NEWER = "bookworm-backports"
# Each series with the suite that has it.
KERNELS = {"6.1": SUITE, "6.12": NEWER}
META = "linux-image-cloud-amd64"
# The modules that the guests load with their dependencies. Everything else is built in.
MODULES = ["virtio_pci", "virtio_blk", "overlay", "veth"]
# Added to Debian's smallest system for the programs in the sandboxes.
ROOT_PACKAGES = ["make", "python3"]
ROOT_BYTES = 512 << 20
NEEDED = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "strip": "binutils"}
QEMU = "qemu-system-x86_64"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"


class Apt:
    """apt with its own sources, lists and cache: the machine's sources, and the suites above if they
    are missing. /etc is not changed."""

    def __init__(self, cache):
        self.home = cache / "apt"
        self.updated = False
        self.options = [
            *rig.APT_OPTIONS, "-o", "APT::Sandbox::User=root",
            "-o", f"Dir::State::lists={self.home}/lists", "-o", f"Dir::Cache={self.home}/cache",
            "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={self.home}/sources",
        ]

    def run(self, command, *arguments, **settings):
        """Returns what an apt command prints. The first one updates the lists before."""
        if not self.updated:
            self.updated = True
            self.update()
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return rig.run([command, *self.options, *arguments], env=env, **settings)

    def update(self):
        """Copies the machine's sources and adds the missing suites."""
        sources = self.home / "sources"
        shutil.rmtree(sources, ignore_errors=True)
        for directory in [sources, self.home / "lists" / "partial",
                          self.home / "cache" / "archives" / "partial"]:
            directory.mkdir(parents=True, exist_ok=True)
        etc = Path("/etc/apt")
        for number, file in enumerate([etc / "sources.list", *sorted(etc.glob("sources.list.d/*"))]):
            if file.suffix in (".list", ".sources") and file.is_file():
                shutil.copy(file, sources / f"{number:02}-{file.name}")
        self.run("apt-get", "update")
        # apt refuses a suite that is listed twice with different keyrings.
        have = {suite for _, suite in self.configured()}
        missing = [f"deb [signed-by={KEYRING}] {self.mirror()} {suite} main\n"
                   for suite in [SUITE, NEWER] if suite not in have]
        if missing:
            (sources / "99-guests.list").write_text("".join(missing))
            self.run("apt-get", "update")

    def configured(self):
        """The site and suite of every source."""
        listed = self.run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)",
                          "Created-By: Packages", "Component: main")
        return {tuple(line.split()) for line in listed.splitlines()}

    def mirror(self):
        """The Debian mirror of this machine."""
        sites = sorted(site for site, suite in self.configured() if suite.startswith(SUITE))
        return next((site for site in sites if not site.rstrip("/").endswith("security")), MIRROR)


def install_needed(apt):
    """Installs QEMU and the tools that make images, where they are missing."""
    missing = rig.missing_packages(NEEDED)
    if missing:
        rig.say(f"installing {' '.join(missing)}")
        apt.run("apt-get", "install", "-y", "--no-install-recommends", *missing)
    if not shutil.which(QEMU):
        # If qemu-utils comes from backports, it conflicts with bookworm's own QEMU.
        release = Path("/etc/os-release").read_text()
        suite = ["-t", NEWER] if f"VERSION_CODENAME={SUITE}\n" in release else []
        rig.say(f"installing {QEMU}")
        apt.run("apt-get", "install", "-y", "--no-install-recommends", *suite, "qemu-system-x86")


def once(path, make):
    """Returns `path`. If it is missing, `make(new)` makes it, and it appears only when it is complete."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as scratch:
            new = Path(scratch) / "made"
            make(new)
            os.rename(new, path)
    return path


def download(apt, package, directory):
    """Downloads `package` or `package=version` and unpacks it."""
    directory.mkdir(parents=True)
    apt.run("apt-get", "download", package, cwd=directory)
    archive, = directory.glob("*.deb")
    rig.run(["dpkg-deb", "--extract", archive, directory / "unpacked"])
    return directory / "unpacked"


def busybox(apt, cache):
    """A static busybox."""
    def make(new):
        unpacked = download(apt, "busybox-static", new.parent / "package")
        shutil.copy(unpacked / "bin" / "busybox", new)
    return once(cache / "busybox", make)


def kernel(apt, cache, series, wanted=MODULES):
    """A folder with `vmlinuz`, the `wanted` modules numbered in load order, and `version`."""
    def make(new):
        package, version = newest(apt, series)
        rig.say(f"downloading {package} {version}")
        unpacked = download(apt, f"{package}={version}", new.parent / "package")
        new.mkdir()
        image, = (unpacked / "boot").glob(f"vmlinuz-{series}.*")
        shutil.copy(image, new / "vmlinuz")
        for number, (name, code) in enumerate(modules(unpacked, wanted)):
            (new / f"{number:02}-{name}.ko").write_bytes(code)
        (new / "version").write_text(f"{package} {version}\n")
    return once(cache / f"kernel-{series}", make)


def newest(apt, series):
    """The kernel package of `series` that the meta package depends on, and its version."""
    for stanza in apt.run("apt-cache", "show", META).split("\n\n"):
        found = re.search(rf"^Depends:.*?\b(linux-image-{re.escape(series)}\.\S+)"
                           r" \(= ([^)]+)\)", stanza, re.MULTILINE)
        if found:
            return found.groups()
    rig.fail(f"no {META} of {KERNELS[series]} depends on a kernel {series}")


def modules(unpacked, wanted):
    """Name and code of the `wanted` modules and their dependencies, in load order."""
    files = {file.name.partition(".")[0].replace("-", "_"): file
             for file in unpacked.glob("lib/modules/**/*.ko*")}
    found = {}

    def add(name):
        # A module that is built into the kernel has no file.
        if name in found or name not in files:
            return
        code = files[name].read_bytes()
        code = lzma.decompress(code) if files[name].suffix == ".xz" else code
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for other in depends.group(1).decode().split(",") if depends else []:
            add(other.replace("-", "_"))
        found[name] = code

    for name in wanted:
        add(name)
    return found.items()


def root(apt, cache):
    """An ext4 image of Debian's smallest system with `ROOT_PACKAGES`."""
    def make(new):
        rig.say(f"making the guest's system from {SUITE}")
        tree = new.parent / "root"
        command = [*rig.PRIVATE_MOUNTS, "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--format=directory",
                   "--aptopt=Acquire::Retries \"3\"", "--dpkgopt=path-exclude=/usr/share/doc/*",
                   "--dpkgopt=path-exclude=/usr/share/man/*",
                   "--dpkgopt=path-exclude=/usr/share/locale/*",
                   f"--include={','.join(ROOT_PACKAGES)}", SUITE, tree, apt.mirror()]
        rig.run(command, stderr=subprocess.STDOUT)
        images.ext4(new, tree, ROOT_BYTES)
    return once(cache / f"root-{'-'.join([SUITE, *ROOT_PACKAGES])}.ext4", make)
