#!/usr/bin/env python3
"""Reads GET /metrics with the parsers and lints of Prometheus, has a real Prometheus scrape it, and
sends that Prometheus every query of the dashboard.

    test_metrics.py COFFERDAM TOOLS

COFFERDAM is the binary. TOOLS is a folder for Debian's packages of Prometheus and of its Python client,
which are unpacked there and not installed, so that no daemon starts. Needs Debian and root.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

import rig
from rig import REPOSITORY

PACKAGES = ["prometheus", "python3-prometheus-client"]
APT = ["apt-get", *rig.APT_OPTIONS, "-o", "APT::Sandbox::User=root"]
SCRAPED_SECONDS_MAX = 60
LINTS_FOUND = 3  # promtool's exit code
SCRAPES_WANTED = 4
PLAIN = "text/plain;version=0.0.4"
# The Accept header that Prometheus sends.
OPEN = f"application/openmetrics-text;version=1.0.0,{PLAIN};q=0.5,*/*;q=0.1"


def main():
    binary, tools = (Path(argument).resolve() for argument in rig.arguments(__doc__, 2))
    unpack(tools)
    port, faults = rig.free_port(), []
    server = start([binary, "serve", "--addr", f"127.0.0.1:{port}", "--langs", "langs"], RUN_CONCURRENCY="2")
    try:
        rig.wait_until_ready(server, port)
        post_some(port)
        faults += check_texts(port, tools)
        faults += check_prometheus(port, tools)
    finally:
        faults += rig.stop(server)
    rig.finish(faults, "GET /metrics, the configuration and the dashboard hold")


def unpack(tools):
    if all((tools / f"{package}.unpacked").exists() for package in PACKAGES):
        return
    tools.mkdir(parents=True, exist_ok=True)
    rig.say(f"downloading {' '.join(PACKAGES)}")
    download = [*APT, "download", *PACKAGES]
    if rig.attempt(download, cwd=tools).returncode != 0:
        rig.run([*APT, "update"])
        rig.run(download, cwd=tools)
    for package in PACKAGES:
        [archive] = tools.glob(f"{package}_*.deb")
        rig.run(["dpkg-deb", "--extract", archive, tools / "root"])
        archive.unlink()
        (tools / f"{package}.unpacked").touch()


def post_some(port):
    """Posts a good run, one that times out, an invalid request, and one run too many."""
    run = {"lang_slug": "python", "asserts": "{\"arguments\": [[1, 2]]}", "solution_text": "def solution(a, b):\n    return a + b\n"}
    never = {**run, "solution_text": "def solution(a, b):\n    while True: pass\n", "timeout": "2s"}
    for request, status in [(run, 200), (never, 200), ({}, 400)]:
        answer = rig.post_run(port, request)
        assert answer.status == status, answer
    connections = [rig.send(port, "POST", "/run", json.dumps(never)) for _ in range(2)]
    rig.wait_until(lambda: "\ncofferdam_slots_in_use 2\n" in rig.get(port, "/metrics").text,
                   "two slots in use", rig.ANSWER_SECONDS_MAX)
    answer = rig.post_run(port, run)
    assert answer.status == 429, answer
    for connection in connections:
        rig.receive(connection)


def shape(name, kind):
    """Name and type of a series. The seed's counters have names without `_total`, which the parser adds,
    and which OpenMetrics does not allow: there they are gauges."""
    is_seeds = name.startswith("term_executor_")
    return (name.removesuffix("_total"), "seed's") if is_seeds else (name, kind)


def check_texts(port, tools):
    """Both formats with the parsers of the Python client, and the plain one with promtool."""
    faults = []
    sys.path.insert(0, str(tools / "root/usr/lib/python3/dist-packages"))
    shapes = {}
    for accept, parser in [(PLAIN, "prometheus_client.parser"), (OPEN, "prometheus_client.openmetrics.parser")]:
        status, headers, text = rig.get(port, "/metrics", headers={"accept": accept})
        assert status == 200, text
        parse = importlib.import_module(parser).text_string_to_metric_families
        families = list(parse(text))
        named = dict(shape(sample.name, family.type) for family in families for sample in family.samples)
        undocumented = [family.name for family in families if not family.documentation]
        faults += [f"{parser}: no help for {name}" for name in undocumented]
        shapes[accept] = named
        print(f"{headers['content-type']}: {parser} reads {len(families)} families, {sum(len(f.samples) for f in families)} figures, {len(text)} bytes")
    if shapes[PLAIN] != shapes[OPEN]:
        faults.append(f"the two formats differ: {set(shapes[PLAIN].items()) ^ set(shapes[OPEN].items())}")
    text = rig.get(port, "/metrics", headers={"accept": PLAIN}).text
    promtool = rig.attempt([tools / "root/usr/bin/promtool", "check", "metrics"], input=text)
    print(f"promtool check metrics: {promtool.returncode} {promtool.stdout}{promtool.stderr}".rstrip())
    # The contract names the series of an older service, as that service named them.
    reported = [line for line in promtool.stderr.splitlines() if not line.startswith("term_executor_")]
    if promtool.returncode not in (0, LINTS_FOUND) or reported:
        faults.append("promtool reports faults")
    return faults


def check_prometheus(port, tools):
    """Runs Prometheus with the configuration from the document until it has scraped SCRAPES_WANTED times."""
    document = (REPOSITORY / "docs/operations.md").read_text()
    [block] = re.findall(r"```yaml prometheus\.yml\n(.*?)```", document, re.S)
    own = rig.free_port()
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "prometheus.yml"
        config.write_text("global:\n  scrape_interval: 1s\n" + block.replace(":4040", f":{port}"))
        checked = rig.attempt([tools / "root/usr/bin/promtool", "check", "config", config])
        if checked.returncode != 0:
            return [f"promtool check config: {checked.stdout}{checked.stderr}"]
        prometheus = start(
            [tools / "root/usr/bin/prometheus", f"--config.file={config}", f"--storage.tsdb.path={scratch}/data",
             f"--web.listen-address=127.0.0.1:{own}", "--log.level=warn"])
        try:
            scraped = lambda: value(own, 'count_over_time(up{job="cofferdam"}[1m])') or 0
            if not rig.wait_until(lambda: scraped() >= SCRAPES_WANTED,
                                  f"{SCRAPES_WANTED} scrapes", SCRAPED_SECONDS_MAX, prometheus):
                return [f"Prometheus exited with {prometheus.returncode}"]
            faults = [] if value(own, 'min_over_time(up{job="cofferdam"}[1m])') == 1 else ["a scrape failed"]
            took = value(own, 'max_over_time(scrape_duration_seconds{job="cofferdam"}[1m])')
            samples = value(own, 'scrape_samples_scraped{job="cofferdam"}')
            print(f"Prometheus: {scraped():.0f} scrapes of {samples:.0f} samples, {took * 1000:.1f} ms at most")
            return faults + check_dashboard(own) + check_counted(own)
        finally:
            rig.stop(prometheus, "Prometheus")


def check_dashboard(own):
    """Every query of the dashboard must have a result."""
    dashboard = json.loads((REPOSITORY / "deploy/grafana/cofferdam.json").read_text())
    faults, asked = [], 0
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "10s").replace("$job", ".*").replace("$instance", ".*")
            found = query_result(own, query)
            asked += 1
            if not found:
                faults.append(f"{panel['title']}: no result for {query}")
    print(f"dashboard: {asked} queries, {asked - len(faults)} answered")
    return faults if asked else ["the dashboard has no queries"]


def check_counted(own):
    wanted = {
        'cofferdam_runs_total{language="python",outcome="timed_out"}': 3,
        'cofferdam_refusals_total{reason="invalid"}': 1,
        "cofferdam_slots": 2,
    }
    found = {query: value(own, query) for query in wanted}
    return [f"{query} is {found[query]}, not {want}" for query, want in wanted.items() if found[query] != want]


def query_result(own, query):
    status, _, text = rig.get(own, "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
    answer = json.loads(text) if status in (200, 400, 422) else {}
    if status != 200:
        print(f"{query}: {answer.get('error', status)}")
    return answer.get("data", {}).get("result", [])


def value(own, query):
    try:
        result = query_result(own, query)
    except OSError:
        return None
    return float(result[0]["value"][1]) if result else None


def start(command, **env):
    return subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **env}, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    rig.start(main)
