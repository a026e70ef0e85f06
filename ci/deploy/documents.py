"""Runs the `sh deploy` blocks of the documents without a cluster, an engine or a running systemd:
stand-ins render, read or verify the same files in their place. Also compares the runbook's quotes
with the sources."""

import os
import re

import rig
from rig import REPOSITORY

from . import sources
from .tools import DOCKER_COMPOSE, FOLDER, KUBECTL

STAND_INS = {
    # apply -k DIR
    "kubectl": '[ "$1 $2" = "apply -k" ] && exec "$KUBECTL" kustomize "$3"; exit 2',
    # compose -f FILE up --detach SERVICE
    "docker": '[ "$1 $4 $5" = "compose up --detach" ] && '
              'exec "$DOCKER_COMPOSE" -f "$3" --profile "$6" config --quiet; exit 2',
    "systemctl": 'case "$*" in daemon-reload) ;; '
                 '"enable --now cofferdam") exec systemd-analyze verify cofferdam.service ;; '
                 '*) exit 2 ;; esac',
}
# In a mount namespace with overlays over the folders that are written to, so that nothing remains.
PRIVATE = """
mount -t tmpfs upper /mnt
for directory in /etc /usr/local "$REPOSITORY/deploy"; do
    mkdir -p "/mnt$directory/upper" "/mnt$directory/work"
    cd "/mnt$directory"
    mount -t overlay -o "lowerdir=$directory,upperdir=upper,workdir=work" overlay "$directory"
done
cd "$REPOSITORY"
install -D -m 755 "$BINARY" /usr/local/bin/cofferdam
exec sh -eu -c "$1"
"""


def check(binary):
    stand_ins = FOLDER / "stand-ins"
    stand_ins.mkdir(exist_ok=True)
    for name, text in STAND_INS.items():
        (stand_ins / name).write_text(f"#!/bin/sh\n{text}\n")
        (stand_ins / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{stand_ins}:{os.environ['PATH']}", "BINARY": str(binary),
           "REPOSITORY": str(REPOSITORY),
           "KUBECTL": str(KUBECTL), "DOCKER_COMPOSE": str(DOCKER_COMPOSE)}
    faults, blocks = [], 0
    for document in [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]:
        text = document.read_text()
        for block in re.findall(r"^```sh deploy\n(.*?)^```$", text, re.M | re.S):
            blocks += 1
            done = rig.attempt([*rig.PRIVATE_MOUNTS, "sh", "-eu", "-c", PRIVATE, "sh", block],
                               cwd=REPOSITORY, env=env)
            if done.returncode != 0:
                faults.append(f"{document.name}: {block}{done.stdout[-2000:]}{done.stderr[-2000:]}")
    print(f"documents: {blocks} blocks run")
    if blocks == 0:
        faults.append("no block found")
    return faults + runbook_faults()


def runbook_faults():
    """Each quote in the first column of the runbook is in a source or names a manifest."""
    source = sources.rust()
    runbook = (REPOSITORY / "docs/operations.md").read_text().split("## Runbook")[1]
    rows = [row.split("|")[1] for row in runbook.splitlines() if row.startswith("|")][2:]
    quoted = [quote for row in rows for quote in re.findall(r"`([^`]+)`", row)]
    files = "".join(path.name for path in (REPOSITORY / "deploy/kubernetes/variants").iterdir())
    faults = [f"the runbook quotes {quote!r}, which is in no source" for quote in quoted
              if quote not in source and quote not in files]
    return faults if quoted else ["the runbook quotes nothing"]
