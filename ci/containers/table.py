"""The table of docs/deploy.md, made from what the test expects."""

from rig import REPOSITORY

from . import expected

DOCUMENT = REPOSITORY / "docs" / "deploy.md"
FIRST, LAST = "<!-- containers -->\n", "<!-- end of containers -->\n"


def made():
    """The flags of each kind of container, and what holds in it."""
    lines = ["| container | flags of podman | flags of Docker |", "|---|---|---|"]
    for name, flags in expected.CONTAINERS.items():
        podman = " ".join(flags)
        docker = podman.replace(" ".join(expected.UNCONFINED), expected.DOCKER_UNCONFINED)
        cells = [f"`{flags}`" if flags else "none" for flags in [podman, docker]]
        lines.append(" ".join(["|", name, "|", cells[0], "|", cells[1], "|"]))
    lines += ["", row("", expected.CONTAINERS), "|---" * (len(expected.CONTAINERS) + 1) + "|"]
    for name, cells in {**expected.CONTROLS, **expected.RUNS}.items():
        lines.append(row(name, cells))
    return "\n".join(lines) + "\n"


def row(name, cells):
    return "| " + " | ".join([name, *cells]) + " |"


def faults():
    before, after = around()
    text = DOCUMENT.read_text()
    if text[len(before):len(text) - len(after)] == made():
        return []
    return ["the table in docs/deploy.md is out of date: run ci/test_containers.py --write-table"]


def write():
    DOCUMENT.write_text(made().join(around()))


def around():
    """The document before and after the table."""
    before, rest = DOCUMENT.read_text().split(FIRST)
    return before + FIRST, LAST + rest.split(LAST)[1]
