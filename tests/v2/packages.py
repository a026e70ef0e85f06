"""What a guest is made of, fetched from Debian once and kept: two kernels, a busybox, a root file
system. Nothing of it is installed on this machine; QEMU is, where there is none.
"""

import lzma
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

SUITE = "bookworm"
NEWER = "bookworm-backports"
# A series, and the suite that has it.
KERNELS = {"6.1": SUITE, "6.12": NEWER}
META = "linux-image-cloud-amd64"
# Of the kernel's modules, those the guest loads and what they depend on. All else is built in.
MODULES = ["virtio_pci", "virtio_blk", "overlay", "veth"]
# What the programs in the boxes are, beside Debian's smallest system.
ROOT_PACKAGES = ["make", "python3"]
ROOT_BYTES = 512 << 20
NEEDED = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "strip": "binutils"}
QEMU = "qemu-system-x86_64"
# What is mounted below a folder that is removed afterwards is mounted for that program alone.
PRIVATE = ["unshare", "--mount", "--propagation", "private"]
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"


class Apt:
    """apt with sources, lists and a cache of its own: this machine's sources, and the suites above
    where it has them not. /etc is left as it is."""

    def __init__(self, cache):
        self.home = cache / "apt"
        self.updated = False
        self.options = [
            "-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300",
            "-o", "APT::Sandbox::User=root",
            "-o", f"Dir::State::lists={self.home}/lists", "-o", f"Dir::Cache={self.home}/cache",
            "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={self.home}/sources",
        ]

    def run(self, command, *arguments, **settings):
        """What one apt command prints, after the one update that comes before all others."""
        if not self.updated:
            self.updated = True
            self.update()
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        done = subprocess.run([command, *self.options, *arguments], env=env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, **settings)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}\n"
                             f"v2: {command} {' '.join(arguments)} failed")
        return done.stdout

    def update(self):
        """Copies this machine's sources and adds what they lack."""
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
        # One suite from one place with two keyrings is an error to apt.
        have = {suite for _, suite in self.configured()}
        missing = [f"deb [signed-by={KEYRING}] {self.mirror()} {suite} main\n"
                   for suite in [SUITE, NEWER] if suite not in have]
        if missing:
            (sources / "99-v2.list").write_text("".join(missing))
            self.run("apt-get", "update")

    def configured(self):
        """The site and suite of every source."""
        listed = self.run("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)",
                          "Created-By: Packages", "Component: main")
        return {tuple(line.split()) for line in listed.splitlines()}

    def mirror(self):
        """Where this machine gets its Debian from."""
        sites = sorted(site for site, suite in self.configured() if suite.startswith(SUITE))
        return next((site for site in sites if not site.rstrip("/").endswith("security")), MIRROR)


def install_needed(apt):
    """QEMU and the tools that make images, where they are missing."""
    missing = [package for command, package in NEEDED.items() if not shutil.which(command)]
    if missing:
        print(f"v2: installing {' '.join(missing)}", flush=True)
        apt.run("apt-get", "install", "-y", "--no-install-recommends", *missing)
    if not shutil.which(QEMU):
        # Where qemu-utils is the backports' one, it is in the way of bookworm's own qemu.
        release = Path("/etc/os-release").read_text()
        suite = ["-t", NEWER] if f"VERSION_CODENAME={SUITE}\n" in release else []
        print(f"v2: installing {QEMU}", flush=True)
        apt.run("apt-get", "install", "-y", "--no-install-recommends", *suite, "qemu-system-x86")


def once(path, make):
    """`path`, made by `make(new)` if it is not there yet: whole or not at all."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=path.parent) as scratch:
            new = Path(scratch) / "made"
            make(new)
            os.rename(new, path)
    return path


def download(apt, package, directory):
    """Downloads `package`, or `package=version`, and unpacks it."""
    directory.mkdir(parents=True)
    apt.run("apt-get", "download", package, cwd=directory)
    archive, = directory.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", archive, directory / "unpacked"], check=True)
    return directory / "unpacked"


def busybox(apt, cache):
    """A static busybox."""
    def make(new):
        unpacked = download(apt, "busybox-static", new.parent / "package")
        shutil.copy(unpacked / "bin" / "busybox", new)
    return once(cache / "busybox", make)


def kernel(apt, cache, series):
    """A folder with `vmlinuz`, the modules in the order to load them, and `version`."""
    def make(new):
        package, version = newest(apt, series)
        print(f"v2: fetching {package} {version}", flush=True)
        unpacked = download(apt, f"{package}={version}", new.parent / "package")
        new.mkdir()
        image, = (unpacked / "boot").glob(f"vmlinuz-{series}.*")
        shutil.copy(image, new / "vmlinuz")
        for number, (name, code) in enumerate(modules(unpacked)):
            (new / f"{number:02}-{name}.ko").write_bytes(code)
        (new / "version").write_text(f"{package} {version}\n")
    return once(cache / f"kernel-{series}", make)


def newest(apt, series):
    """The kernel package of `series` that the suite's meta package asks for, and its version."""
    for stanza in apt.run("apt-cache", "show", META).split("\n\n"):
        wanted = re.search(rf"^Depends:.*?\b(linux-image-{re.escape(series)}\.\S+)"
                           r" \(= ([^)]+)\)", stanza, re.MULTILINE)
        if wanted:
            return wanted.groups()
    raise SystemExit(f"v2: no {META} of {KERNELS[series]} asks for a kernel {series}")


def modules(unpacked):
    """Name and code of what `MODULES` are and depend on, each after what it needs."""
    files = {file.name.partition(".")[0].replace("-", "_"): file
             for file in unpacked.glob("lib/modules/**/*.ko*")}
    found = {}

    def add(name):
        # One that is built into the kernel has no file.
        if name in found or name not in files:
            return
        code = files[name].read_bytes()
        code = lzma.decompress(code) if files[name].suffix == ".xz" else code
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for other in depends.group(1).decode().split(",") if depends else []:
            add(other.replace("-", "_"))
        found[name] = code

    for name in MODULES:
        add(name)
    return found.items()


def root(apt, cache):
    """An ext4 image of Debian's smallest system and `ROOT_PACKAGES`."""
    def make(new):
        print(f"v2: making the guest's system of {SUITE}", flush=True)
        tree = new.parent / "root"
        command = [*PRIVATE, "mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--format=directory",
                   "--aptopt=Acquire::Retries \"3\"", "--dpkgopt=path-exclude=/usr/share/doc/*",
                   "--dpkgopt=path-exclude=/usr/share/man/*",
                   "--dpkgopt=path-exclude=/usr/share/locale/*",
                   f"--include={','.join(ROOT_PACKAGES)}", SUITE, tree, apt.mirror()]
        done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout[-3000:]}\nv2: mmdebstrap failed")
        image(new, tree, ROOT_BYTES)
    return once(cache / f"root-{'-'.join([SUITE, *ROOT_PACKAGES])}.ext4", make)


def image(path, tree, size):
    """An ext4 file system of what is in `tree`."""
    with open(path, "wb") as file:
        file.truncate(size)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", tree, path],
                   check=True, stdin=subprocess.DEVNULL)
