"""Facts that the manifests must agree with, read from the sources and documents."""

import functools
import re
import tomllib

from rig import REPOSITORY

LANGUAGES = tomllib.loads((REPOSITORY / "langs" / "languages.toml").read_text())
# The capabilities that a container or a unit needs. start.py tries all of them, and all but one.
CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN"}
SERVICE_MIB = 256
# The gauges of GET /metrics that autoscaling may use.
METRICS = {"cofferdam_slots_in_use"}


@functools.cache
def rust():
    """The Rust sources of the product as one text."""
    paths = [*REPOSITORY.glob("src/**/*.rs"), *REPOSITORY.glob("crates/*/src/**/*.rs")]
    return "".join(path.read_text() for path in paths)


def defaults():
    """The documented variables with their defaults."""
    table = (REPOSITORY / "docs" / "configuration.md").read_text()
    return dict(re.findall(r"^\| `([A-Z_]+)` \| *`?([^|]*?)`? *\|", table, re.M))


def image_port():
    """The port on which an image serves, as its Dockerfile sets and exposes it."""
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    [port] = set(re.findall(r"^(?:ENV .*\bPORT=|EXPOSE )(\d+)$", dockerfile, re.M))
    return int(port)


def variables():
    """The variables of the table in src/config/table."""
    table = "".join(path.read_text() for path in REPOSITORY.glob("src/config/table/*.rs"))
    return set(re.findall(r"^    ([A-Z_]+) \{$", table, re.M))


def after_the_grace():
    """The seconds that a drain may take after SHUTDOWN_GRACE."""
    source = rust()
    def constant(name):
        [seconds] = re.findall(rf"const {name}: Duration = Duration::from_secs\((\d+)\)", source)
        return int(seconds)
    return constant("KILLED_WITHIN") + 2 * constant("LAST_ANSWERS_WITHIN") + constant("PARKED_WITHIN")


def metrics_not_served():
    """Those of METRICS that no source names."""
    source = rust()
    return {name for name in METRICS if name not in source}


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def mib(text):
    """MiB of a size of ours (768MiB) or an orchestrator's (4352Mi, 4352m)."""
    number, unit = re.fullmatch(r"(\d+)(MiB|GiB|Mi|Gi|m|g)", text).groups()
    return int(number) * {"M": 1, "G": 1024, "m": 1, "g": 1024}[unit[0]]


def run_mib(component, memory_max):
    """The memory of one run; `component` is a slug or `all`."""
    tables = LANGUAGES.values() if component == "all" else [LANGUAGES[component]]
    return max([mib(memory_max)] + [mib(table.get("memory_max", "0MiB")) for table in tables])


def pod_mib(component, env):
    """The formula of docs/deploy.md."""
    return int(env["RUN_CONCURRENCY"]) * run_mib(component, env["RUN_MEMORY_MAX"]) + SERVICE_MIB


def env_of_base():
    return env_file(REPOSITORY / "deploy" / "kubernetes" / "base" / "cofferdam.env")


def env_file(path):
    """The variables that a file sets; a line with # before the name sets none."""
    lines = [line for line in path.read_text().splitlines() if re.match(r"[A-Z_]+=", line)]
    return dict(line.split("=", 1) for line in lines)
