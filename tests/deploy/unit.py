"""deploy/systemd: the unit as systemd reads it, and its variables as docs/configuration.md has them."""

import re
import subprocess
import tempfile
from pathlib import Path

import claims
from tools import REPOSITORY

SYSTEMD = REPOSITORY / "deploy" / "systemd"
UNIT = SYSTEMD / "cofferdam.service"
# Of ten, what systemd-analyze gives a unit without any of its options is 9.6.
EXPOSURE_MAX = 7.0
BREAKS_BOXES = {"RestrictNamespaces", "ProtectControlGroups", "ProtectHostname", "ProtectProc",
                "ProcSubset", "PrivateUsers", "SystemCallFilter", "SystemCallArchitectures",
                "RestrictAddressFamilies", "RestrictRealtime", "RestrictSUIDSGID",
                "LockPersonality", "MemoryDenyWriteExecute"}

SPOILT = {"Delegate": "no", "TimeoutStopSec": "30s", "KillMode": "control-group",
          "TasksMax": "4096", "RuntimeDirectoryPreserve": "no", "OOMPolicy": "stop",
          "CapabilityBoundingSet": "CAP_SYS_ADMIN", "ProtectHostname": "yes"}


def check(binary):
    faults = unit_faults(options())
    faults += [f"nobody notices {name}={value}" for name, value in SPOILT.items()
               if not unit_faults({**options(), name: value})]
    with tempfile.TemporaryDirectory() as scratch:
        # The one line of it that another machine may not have.
        copy = Path(scratch) / UNIT.name
        copy.write_text(UNIT.read_text().replace("/usr/local/bin/cofferdam", str(binary)))
        faults += analyze("verify", copy)
        copy.write_text(copy.read_text() + "[Service]\nTimeoutStopSecs=1\n")
        if not analyze("verify", copy):
            faults.append("systemd-analyze accepts a misspelt option")
    threshold = str(int(EXPOSURE_MAX * 10))
    faults += analyze("security", "--offline=true", f"--threshold={threshold}", UNIT)
    return faults + example_faults()


def options():
    """The options of [Service]; nothing in it is given twice."""
    text = UNIT.read_text().split("[Service]\n")[1].split("\n[")[0]
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))


def unit_faults(service):
    default = claims.defaults()
    grace = claims.seconds(default["SHUTDOWN_GRACE"]) + claims.after_the_grace()
    processes = int(default["RUN_CONCURRENCY"]) * int(default["RUN_PIDS_MAX"])
    promises = {
        "a tree of control groups": service["Delegate"] == "yes",
        "the drain's time": claims.seconds(service["TimeoutStopSec"]) > grace,
        "the signal for the service alone": service["KillMode"] == "mixed",
        "processes for all runs": int(service["TasksMax"]) >= 2 * processes,
        "locks that outlive it": service["RuntimeDirectoryPreserve"] == "yes",
        "a run's end is not its own": service["OOMPolicy"] == "continue",
        "no more capabilities than needed":
            set(service["CapabilityBoundingSet"].replace("CAP_", "").split())
            == claims.CAPABILITIES,
        "nothing that breaks boxes": not service.keys() & BREAKS_BOXES,
    }
    return [name for name, kept in promises.items() if not kept]


def analyze(*command):
    done = subprocess.run(["systemd-analyze", "--no-pager", *command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.strip().splitlines()[-1:]
    if command[0] == "security":
        print(f"systemd: {said[0] if said else 'nothing'}")
    # `verify` ends with 0 whatever it has found.
    found = done.returncode != 0 or (command[0] == "verify" and said)
    return [f"systemd-analyze {command[0]}: {done.stdout.strip()}"] if found else []


def example_faults():
    """Each variable of docs/configuration.md is there, as a comment, with its default if it has one."""
    text = (SYSTEMD / "cofferdam.env").read_text()
    offered, default = dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.M)), claims.defaults()
    faults = [f"cofferdam.env sets {line}" for line in re.findall(r"^[^#\n].*$", text, re.M)]
    faults += [f"cofferdam.env: {name}" for name in sorted(set(default) ^ set(offered))]
    for name, value in offered.items():
        if re.fullmatch(r"\w+", default.get(name, "")) and default[name] not in default \
                and value != default[name]:
            faults.append(f"cofferdam.env: {name} is {default[name]} by default, not {value}")
    return faults
