#!/usr/bin/env python3
"""Builds the image for python and for cpp from nothing, runs each as a privileged container,
posts the language's example to it and stops it.

    test.py COFFERDAM [SLUG...]

COFFERDAM is the binary that the images get. Root, Debian and its packages are all it counts on:
podman, which builds as buildah does, is installed where it is missing, and the base image is made
here. Nothing of it stays but the package. Python 3.11, standard library only.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LANGS = REPOSITORY / "langs"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 40
ANSWER_SECONDS_MAX = 120
BASE = "localhost/cofferdam-base:trixie"
NEEDED = {"podman": "podman", "runc": "runc", "mmdebstrap": "mmdebstrap"}
# Engines ask for more than a machine may give, so it is said; a box needs 256 and less.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]
# What a build leaves where nobody looks for it.
TRACES = "for d in /var/lib/apt/lists /var/cache/apt /tmp /workspace; do ls -A $d 2>/dev/null; done; true"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if os.getuid() != 0:
        sys.exit("images: only root can make a base image and run a privileged container")
    binary, slugs = Path(sys.argv[1]).resolve(), sys.argv[2:] or ["python", "cpp"]
    if "IMAGE_TEST_PRIVATE" not in os.environ:
        # What the engine mounts and does not unmount goes with this process.
        os.environ["IMAGE_TEST_PRIVATE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *sys.orig_argv])
    install_needed()
    groups_before = parent_groups()
    scratch = Path(tempfile.mkdtemp(prefix="cofferdam-image-", dir="/var/tmp"))
    engine = ["podman", "--root", f"{scratch}/store", "--runroot", f"{scratch}/run",
              "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
    try:
        context = make_context(scratch, binary)
        timed("base image", [LANGS / "toolchains" / "base", scratch / "base.tar"], scratch)
        timed("import", [*engine, "import", "--quiet", scratch / "base.tar", BASE], scratch)
        faults = [fault for slug in slugs for fault in check(slug, engine, context, scratch)]
    finally:
        subprocess.run([*engine, "rm", "--all", "--force"], stdout=subprocess.DEVNULL)
        subprocess.run(["umount", "--recursive", "--quiet", scratch / "store" / "overlay"])
        shutil.rmtree(scratch)
        remove_groups(parent_groups() - groups_before)
    if faults:
        sys.exit("\n".join(faults))


def install_needed():
    missing = [package for command, package in NEEDED.items() if not shutil.which(command)]
    if missing:
        apt_get = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*apt_get, "update"], check=True, env=env)
        subprocess.run([*apt_get, "install", "-y", "--no-install-recommends", *missing],
                       check=True, env=env)


def make_context(scratch, binary):
    """What .dockerignore lets through, without whatever else lies in the checkout."""
    context = scratch / "context"
    (context / "target" / "image").mkdir(parents=True)
    shutil.copy(REPOSITORY / "Dockerfile", context)
    shutil.copytree(LANGS, context / "langs", symlinks=True)
    shutil.copy(binary, context / "target" / "image" / "cofferdam")
    return context


def timed(what, command, scratch):
    started = time.monotonic()
    with open(scratch / "log", "w") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit((scratch / "log").read_text()[-3000:] + f"\nimages: {what} failed")
    print(f"images: {what}: {time.monotonic() - started:.0f} s", flush=True)


def check(slug, engine, context, scratch):
    """Builds and asks one image; what is wrong with it, in words."""
    tag = f"cofferdam:{slug}"
    timed(f"build of {tag}", [
        *engine, "build", "--isolation", "chroot", "--pull=never", "--tag", tag,
        "--build-arg", f"BASE_IMAGE={BASE}", "--build-arg", "BINARY=given",
        "--build-arg", f"LANGUAGES={slug}", context,
    ], scratch)
    traces = subprocess.check_output(
        [*engine, "run", "--rm", "--network", "none", *LIMITS, "--entrypoint", "sh", tag, "-c", TRACES], text=True
    )
    faults = [f"{tag}: the build left {traces.split()}"] if traces else []

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    name = f"cofferdam-{slug}"
    server = subprocess.Popen([
        *engine, "run", "--rm", "--name", name, "--privileged", "--network", "host", *LIMITS,
        "--env", f"PORT={port}", tag,
    ])
    try:
        wait_until_ready(server, port)
        faults += check_example(tag, slug, port)
    finally:
        subprocess.run([*engine, "kill", "--signal", "TERM", name], stdout=subprocess.DEVNULL)
        code = server.wait(STOP_SECONDS_MAX)
    if code != 0:
        faults.append(f"{tag}: SIGTERM ended it with {code}")
    print(f"images: {tag}: {'; '.join(faults) or 'holds'}", flush=True)
    return faults


def wait_until_ready(server, port):
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"images: the server ended with {server.returncode}")
        try:
            if ask(port, "GET", "/health")[0] == 200:
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("images: the server does not answer")


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def check_example(tag, slug, port):
    table = tomllib.loads((LANGS / "languages.toml").read_text())[slug]
    example = LANGS / slug / "example"
    request = {"lang_slug": slug, "timeout": "60s",
               "solution_text": (example / table["solution"]).read_text(),
               "asserts": (example / "asserts.json").read_text()}
    if "checker" in table:
        request["checker_text"] = (example / table["checker"]).read_text()
    started = time.monotonic()
    status, text = ask(port, "POST", "/run", json.dumps(request))
    print(f"images: {tag}: the example took {time.monotonic() - started:.2f} s", flush=True)
    stdout = json.loads(text).get("stdout", "") if status == 200 else ""
    try:
        values = [item["value"] for item in items_of(stdout) if item["type"] == "result"]
    except (ValueError, KeyError, TypeError):
        values = None
    return [] if values == [3, 42] else [f"{tag}: status {status}, {text}"]


def items_of(stdout):
    """A checker prints one array, or a line for each item."""
    try:
        whole = json.loads(stdout)
        return whole if isinstance(whole, list) else [whole]
    except ValueError:
        return [json.loads(line) for line in stdout.splitlines() if line.strip()]


def parent_groups():
    """The engine's cgroups, which it never removes."""
    root = Path("/sys/fs/cgroup")
    return {path for pattern in ["libpod_parent", "*/libpod_parent"] for path in root.glob(pattern)}


def remove_groups(groups):
    for group in groups:
        for path, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(path)
            except OSError as error:
                print(f"images: {path} stays: {error.strerror}", file=sys.stderr)


if __name__ == "__main__":
    # So that a signal still leads through what tidies up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
