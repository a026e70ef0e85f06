"""deploy/compose.yaml, as docker compose reads it."""

import json

import rig
from rig import REPOSITORY

from . import sources
from .tools import DOCKER_COMPOSE

FILE = REPOSITORY / "deploy" / "compose.yaml"

SPOILT = [("stop_grace_period", "stop_grace"), ("stop_grace_period: 80s", "stop_grace_period: 60s"),
          ("4352m", "4g"), ("127.0.0.1:8080:8080", "8080:8080"), ("8080:8080", "8080:4040"), ("read_only: true", "read_only: false"),
          ("RUN_TIMEOUT_MAX: 60s", "RUN_TIMEOUT_MAX: 5m"), ("cap_drop: [ALL]", "cap_drop: []"),
          ("ISOLATION: strict", "ISOLATION: best"), ("RUN_CONCURRENCY: 4", "RUN_CONCURRENCY: 8"),
          ("privileged: true", "privileged: false"), ("tmpfs: [/run]", "tmpfs: [/run/cofferdam]")]


def check():
    read = config(FILE.read_text(), "--profile", "*")
    if isinstance(read, str):
        return [read]
    services = read["services"]
    faults = [] if set(services) == {"privileged", "least-privilege"} else [f"the services are {[*services]}"]
    for name, service in services.items():
        faults += [f"{name}: {fault}" for fault in service_faults(name, service)]
    faults += [f"the checks miss {change}" for change in SPOILT if is_missed(*change)]
    # No service starts unless a profile is chosen.
    chosen = config(FILE.read_text())
    if isinstance(chosen, dict) and chosen.get("services"):
        faults.append("a service starts without a profile")
    return faults


def is_missed(found, spoilt):
    assert found in FILE.read_text(), found
    read = config(FILE.read_text().replace(found, spoilt), "--profile", "*")
    return isinstance(read, dict) and not any(
        service_faults(name, service) for name, service in read["services"].items())


def config(text, *options):
    """What docker compose reads, or its error message."""
    done = rig.attempt(
        [DOCKER_COMPOSE, "--file", "-", "--project-directory", FILE.parent, *options, "config",
         "--format", "json"], input=text)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()


def service_faults(name, service):
    env, privileged = service["environment"], name == "privileged"
    grace = sources.seconds(env["SHUTDOWN_GRACE"]) + sources.after_the_grace()
    memory = sources.pod_mib("all", env) << 20
    promises = {
        "an image without a registry": service["image"] == "cofferdam:all",
        "only variables that the service reads": set(env) <= sources.variables(),
        "on the loopback interface only": [port.get("host_ip") for port in service["ports"]] == ["127.0.0.1"],
        "the port of the image":
            [(int(port["published"]), port["target"]) for port in service["ports"]]
            == [(sources.image_port(), sources.image_port())],
        "no run is longer than the drain":
            sources.seconds(env["RUN_TIMEOUT_MAX"]) <= sources.seconds(env["SHUTDOWN_GRACE"]),
        "time for the drain": go_seconds(service["stop_grace_period"]) > grace,
        "memory for all runs, and no swap":
            int(service["mem_limit"]) == int(service["memswap_limit"]) == memory,
        "no write to the image": service.get("read_only") is True,
        "a private /run in memory": service["tmpfs"] == ["/run"],
        "privileged only in that service": service.get("privileged", False) is privileged,
        "strict where everything can be enforced":
            env["ISOLATION"] == ("strict" if privileged else "best"),
        "no more capabilities than needed":
            privileged or (service.get("cap_drop"), set(service["cap_add"]))
            == (["ALL"], sources.CAPABILITIES),
    }
    return [promise for promise, kept in promises.items() if not kept]


def go_seconds(text):
    """The seconds of a duration as Go prints it: 1m15s."""
    minutes, _, rest = text.rpartition("m")
    return 60 * int(minutes or 0) + int(rest.rstrip("s") or 0)
