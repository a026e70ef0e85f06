"""What the sources say of themselves, for the manifests to be held against."""

import re
import tomllib

from tools import REPOSITORY

LANGUAGES = tomllib.loads((REPOSITORY / "langs" / "languages.toml").read_text())
# What a container or a unit has to keep for boxes to be made: start.py tries all, and one less.
CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID", "SYS_ADMIN"}
SERVICE_MIB = 256
# The gauges of GET /metrics that the autoscaling may name.
METRICS = {"cofferdam_slots_in_use"}


def defaults():
    """Every variable of docs/configuration.md and its default."""
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    return dict(re.findall(r"^\| `([A-Z_]+)` \| *`?([^|]*?)`? *\|", page, re.M))


def variables():
    """Every variable of the table in src/config/table."""
    files = (REPOSITORY / "src" / "config" / "table").glob("*.rs")
    return {name for path in files for name in re.findall(r"^    ([A-Z_]+) \{$", path.read_text(), re.M)}


def after_the_grace():
    """Seconds that a drain may go on when SHUTDOWN_GRACE is over."""
    source = (REPOSITORY / "src" / "http" / "server.rs").read_text()
    def constant(name):
        return int(re.search(rf"const {name}: Duration = Duration::from_secs\((\d+)\)", source)[1])
    return constant("KILLED_WITHIN") + 2 * constant("LAST_ANSWERS_WITHIN")


def metrics_not_served():
    """Those of METRICS that no source names."""
    sources = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.rs"))
    return {name for name in METRICS if name not in sources}


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60}[unit]


def mib(text):
    """Of our own sizes (768MiB) and of an orchestrator's (4352Mi, 4352m)."""
    number, unit = re.fullmatch(r"(\d+)(MiB|GiB|Mi|Gi|m|g)", text).groups()
    return int(number) * {"M": 1, "G": 1024, "m": 1, "g": 1024}[unit[0]]


def run_mib(component, memory_max):
    """What one run may have where `component` is a slug or all."""
    tables = LANGUAGES.values() if component == "all" else [LANGUAGES[component]]
    return max([mib(memory_max)] + [mib(table.get("memory_max", "0MiB")) for table in tables])


def pod_mib(component, env):
    """The formula of docs/deploy.md."""
    return int(env["RUN_CONCURRENCY"]) * run_mib(component, env["RUN_MEMORY_MAX"]) + SERVICE_MIB


def env_of_base():
    return env_file(REPOSITORY / "deploy" / "kubernetes" / "base" / "cofferdam.env")


def env_file(path):
    """Its variables; a line with a # before the name is one that is not set."""
    lines = [line for line in path.read_text().splitlines() if re.match(r"[A-Z_]+=", line)]
    return dict(line.split("=", 1) for line in lines)
