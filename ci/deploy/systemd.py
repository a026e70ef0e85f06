"""deploy/systemd: the unit as systemd reads it, and its variables as docs/configuration.md lists them."""

import re
import subprocess
import tempfile
from pathlib import Path

import rig
from rig import REPOSITORY

from . import sources

SYSTEMD = REPOSITORY / "deploy" / "systemd"
UNIT = SYSTEMD / "cofferdam.service"
# On the scale of systemd-analyze, from 0 to 10. A unit without any options gets 9.6.
EXPOSURE_MAX = 7.0
BREAKS_SANDBOXES = {"RestrictNamespaces", "ProtectControlGroups", "ProtectHostname", "ProtectProc",
                "ProcSubset", "PrivateUsers", "SystemCallFilter", "SystemCallArchitectures",
                "RestrictAddressFamilies", "RestrictRealtime", "RestrictSUIDSGID",
                "LockPersonality", "MemoryDenyWriteExecute"}

SPOILT = {"Delegate": "no", "TimeoutStopSec": "30s", "KillMode": "control-group",
          "TasksMax": "4096", "RuntimeDirectoryPreserve": "no", "OOMPolicy": "stop",
          "CapabilityBoundingSet": "CAP_SYS_ADMIN", "ProtectHostname": "yes"}


def check(binary):
    faults = unit_faults(options())
    faults += [f"the checks miss {name}={value}" for name, value in SPOILT.items()
               if not unit_faults({**options(), name: value})]
    with tempfile.TemporaryDirectory() as scratch:
        # The only line that depends on the machine.
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
    """The options of [Service]; none is given twice."""
    text = UNIT.read_text().split("[Service]\n")[1].split("\n[")[0]
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))


def unit_faults(service):
    default = sources.defaults()
    grace = sources.seconds(default["SHUTDOWN_GRACE"]) + sources.after_the_grace()
    processes = int(default["RUN_CONCURRENCY"]) * int(default["RUN_PIDS_MAX"])
    promises = {
        "a tree of control groups": service["Delegate"] == "yes",
        "time for the drain": sources.seconds(service["TimeoutStopSec"]) > grace,
        "SIGTERM for the service only": service["KillMode"] == "mixed",
        "processes for all runs": int(service["TasksMax"]) >= 2 * processes,
        "locks that survive a restart": service["RuntimeDirectoryPreserve"] == "yes",
        "an out-of-memory kill in a run does not stop the service": service["OOMPolicy"] == "continue",
        "no more capabilities than needed":
            set(service["CapabilityBoundingSet"].replace("CAP_", "").split())
            == sources.CAPABILITIES,
        "no option that breaks sandboxes": not service.keys() & BREAKS_SANDBOXES,
    }
    return [name for name, kept in promises.items() if not kept]


def analyze(*command):
    done = rig.attempt(["systemd-analyze", "--no-pager", *command], stderr=subprocess.STDOUT)
    last_line = done.stdout.strip().splitlines()[-1:]
    if command[0] == "security":
        print(f"systemd: {last_line[0] if last_line else 'nothing'}")
    # `verify` exits with 0 even if it finds faults.
    found = done.returncode != 0 or (command[0] == "verify" and last_line)
    return [f"systemd-analyze {command[0]}: {done.stdout.strip()}"] if found else []


def example_faults():
    """cofferdam.env has each documented variable as a comment, with its default if it has one."""
    text = (SYSTEMD / "cofferdam.env").read_text()
    offered, default = dict(re.findall(r"^#([A-Z_]+)=(.*)$", text, re.M)), sources.defaults()
    faults = [f"cofferdam.env sets {line}" for line in re.findall(r"^[^#\n].*$", text, re.M)]
    faults += [f"cofferdam.env: {name}" for name in sorted(set(default) ^ set(offered))]
    for name, value in offered.items():
        if re.fullmatch(r"\w+", default.get(name, "")) and default[name] not in default \
                and value != default[name]:
            faults.append(f"cofferdam.env: {name} is {default[name]} by default, not {value}")
    return faults
