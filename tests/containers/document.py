"""The table of docs/deploy.md, made from what the test expects.

    document.py        prints it
    document.py write  writes it into the document
"""

import sys
from pathlib import Path

import expected

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
FIRST, LAST = "<!-- containers -->\n", "<!-- end of containers -->\n"


def table():
    """The flags of each container, and what holds in it."""
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
    before, after = parts()
    between = DOCUMENT.read_text()[len(before):len(DOCUMENT.read_text()) - len(after)]
    return [] if between == table() else ["docs/deploy.md has another table: make it with tests/containers/document.py write"]


def parts():
    """The document before and after the table."""
    before, rest = DOCUMENT.read_text().split(FIRST)
    return before + FIRST, LAST + rest.split(LAST)[1]


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        DOCUMENT.write_text(table().join(parts()))
    else:
        print(table(), end="")
