#!/usr/bin/env python3
"""Builds the images for python and cpp from scratch, runs each as a privileged container, posts the
language's example to it and stops it.

    test_image.py COFFERDAM [SLUG...]

COFFERDAM is the binary that the images get. Needs Debian and root. Installs podman, runc and
mmdebstrap where they are missing, builds with podman as buildah does, and makes the base image here.
Leaves nothing behind but these packages.
"""

import json
import shutil
import subprocess
import time
import tomllib
from pathlib import Path

import podman
import rig

LANGS = rig.REPOSITORY / "langs"
ANSWER_SECONDS_MAX = 120
BASE = "localhost/cofferdam-base:trixie"
NEEDED = {**podman.NEEDED, "mmdebstrap": "mmdebstrap"}
# Lists what a build leaves in folders that should be empty.
TRACES = "for d in /var/lib/apt/lists /var/cache/apt /tmp /workspace; do ls -A $d 2>/dev/null; done; true"


def main():
    binary, *slugs = rig.arguments(__doc__, 1, 99)
    binary, slugs = Path(binary).resolve(), slugs or ["python", "cpp"]
    rig.require_root("it makes a base image and runs privileged containers")
    rig.in_private_mounts()
    rig.install(rig.missing_packages(NEEDED))
    with podman.Podman() as engine:
        context = make_context(engine.scratch, binary)
        base = engine.scratch / "base.tar"
        rig.timed("base image", [LANGS / "toolchains" / "base", base])
        rig.timed("import", [*engine.command, "import", "--quiet", base, BASE])
        faults = [fault for slug in slugs for fault in check(slug, engine, context)]
    rig.finish(faults, "each image runs its example")


def make_context(scratch, binary):
    """The build context: the part of the repository that the Dockerfile copies, and the binary."""
    context = scratch / "context"
    (context / "target" / "image").mkdir(parents=True)
    shutil.copy(rig.REPOSITORY / "Dockerfile", context)
    shutil.copytree(LANGS, context / "langs", symlinks=True)
    shutil.copy(binary, context / "target" / "image" / "cofferdam")
    return context


def check(slug, engine, context):
    """Builds one image and posts the example to it; returns what is wrong."""
    tag = f"cofferdam:{slug}"
    rig.timed(f"build of {tag}", [
        *engine.command, "build", "--isolation", "chroot", "--pull=never", "--tag", tag,
        "--build-arg", f"BASE_IMAGE={BASE}", "--build-arg", "BINARY=given",
        "--build-arg", f"LANGUAGES={slug}", context,
    ])
    traces = rig.run(engine.run_command("--network", "none", "--entrypoint", "sh", tag, "-c", TRACES))
    faults = [f"{tag}: the build left {traces.split()}"] if traces else []

    port, name = rig.free_port(), f"cofferdam-{slug}"
    server = subprocess.Popen(engine.run_command(
        "--name", name, "--privileged", "--network", "host", "--env", f"PORT={port}", tag))
    try:
        rig.wait_until_ready(server, port)
        faults += check_example(tag, slug, port)
    finally:
        code = engine.stop(name, server)
    if code != 0:
        faults.append(f"{tag}: exited with {code} after SIGTERM")
    rig.say(f"{tag}: {'; '.join(faults) or 'holds'}")
    return faults


def check_example(tag, slug, port):
    table = tomllib.loads((LANGS / "languages.toml").read_text())[slug]
    example = LANGS / slug / "example"
    request = {"lang_slug": slug, "timeout": "60s",
               "solution_text": (example / table["solution"]).read_text(),
               "asserts": (example / "asserts.json").read_text()}
    if "checker" in table:
        request["checker_text"] = (example / table["checker"]).read_text()
    began = time.monotonic()
    answer = rig.post_run(port, request, seconds_max=ANSWER_SECONDS_MAX)
    rig.say(f"{tag}: the example took {time.monotonic() - began:.2f} s")
    stdout = json.loads(answer.text).get("stdout", "") if answer.status == 200 else ""
    try:
        values = [item["value"] for item in rig.items_of(stdout) if item["type"] == "result"]
    except (ValueError, KeyError, TypeError):
        values = None
    return [] if values == [3, 42] else [f"{tag}: status {answer.status}, {answer.text}"]


if __name__ == "__main__":
    rig.start(main)
