#!/usr/bin/env python3
"""Holds GET /metrics to the parsers and the lints of Prometheus, has a real Prometheus scrape it, and
asks that everything the dashboard asks.

    scrape.py COFFERDAM TOOLS

COFFERDAM is the binary; TOOLS a directory that keeps what is fetched: Debian's packages of Prometheus
and of its Python client, unpacked there and not installed, so that no daemon begins to run. Debian,
root and Python 3.11's standard library are all it counts on.
"""

import http.client
import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ["prometheus", "python3-prometheus-client"]
APT = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "APT::Sandbox::User=root"]
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 40
SCRAPED_SECONDS_MAX = 60
ANSWER_SECONDS_MAX = 60
SCRAPES_WANTED = 4
PLAIN = "text/plain;version=0.0.4"
# What Prometheus says by default.
OPEN = f"application/openmetrics-text;version=1.0.0,{PLAIN};q=0.5,*/*;q=0.1"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    binary, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    unpack(tools)
    port, faults = free_port(), []
    server = start([binary, "serve", "--addr", f"127.0.0.1:{port}", "--langs", "langs"], RUN_CONCURRENCY="2")
    try:
        wait_until(lambda: get(port, "/health")[0] == 200, START_SECONDS_MAX, "the service", server)
        post_some(port)
        faults += check_texts(port, tools)
        faults += check_prometheus(port, tools)
    finally:
        faults += stop("the service", server)
    for fault in faults:
        print(f"FAULT: {fault}")
    sys.exit(1 if faults else 0)


def unpack(tools):
    if all((tools / f"{package}.unpacked").exists() for package in PACKAGES):
        return
    tools.mkdir(parents=True, exist_ok=True)
    print(f"fetching {' '.join(PACKAGES)}", flush=True)
    download = [*APT, "download", *PACKAGES]
    if subprocess.run(download, cwd=tools, stdin=subprocess.DEVNULL).returncode != 0:
        subprocess.run([*APT, "update"], check=True, stdin=subprocess.DEVNULL)
        subprocess.run(download, cwd=tools, check=True, stdin=subprocess.DEVNULL)
    for package in PACKAGES:
        [archive] = tools.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, tools / "root"], check=True)
        archive.unlink()
        (tools / f"{package}.unpacked").touch()


def post_some(port):
    """A run that goes well, one that does not, a request that is none, and one run too many."""
    run = {"lang_slug": "python", "asserts": "{\"arguments\": [[1, 2]]}", "solution_text": "def solution(a, b):\n    return a + b\n"}
    never = {**run, "solution_text": "def solution(a, b):\n    while True: pass\n", "timeout": "2s"}
    assert ask(port, run) == 200, "the first run failed"
    assert ask(port, never) == 200
    assert ask(port, {}) == 400
    connections = [begin(port, never) for _ in range(2)]
    wait_until(lambda: "\ncofferdam_slots_in_use 2\n" in get(port, "/metrics")[2], ANSWER_SECONDS_MAX, "their slots")
    assert ask(port, run) == 429
    for connection in connections:
        connection.getresponse().read()


def check_texts(port, tools):
    """Both forms, read by the parsers of the Python client, and the plain one by promtool."""
    faults = []
    sys.path.insert(0, str(tools / "root/usr/lib/python3/dist-packages"))
    shapes = {}
    for accept, parser in [(PLAIN, "prometheus_client.parser"), (OPEN, "prometheus_client.openmetrics.parser")]:
        status, headers, text = get(port, "/metrics", accept)
        assert status == 200, text
        parse = importlib.import_module(parser).text_string_to_metric_families
        families = list(parse(text))
        named = {sample.name: family.type for family in families for sample in family.samples}
        undocumented = [family.name for family in families if not family.documentation]
        faults += [f"{parser}: no help for {name}" for name in undocumented]
        shapes[accept] = named
        print(f"{headers['content-type']}: {parser} reads {len(families)} families, {sum(len(f.samples) for f in families)} figures, {len(text)} bytes")
    if shapes[PLAIN] != shapes[OPEN]:
        faults.append(f"the two forms differ: {set(shapes[PLAIN].items()) ^ set(shapes[OPEN].items())}")
    text = get(port, "/metrics", PLAIN)[2]
    promtool = subprocess.run([tools / "root/usr/bin/promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    print(f"promtool check metrics: {promtool.returncode} {promtool.stdout}{promtool.stderr}".rstrip())
    if promtool.returncode != 0 or promtool.stderr.strip():
        faults.append("promtool finds fault")
    return faults


def check_prometheus(port, tools):
    """Prometheus with the configuration of the document, until it has scraped some times."""
    document = (REPOSITORY / "docs/operations.md").read_text()
    [block] = re.findall(r"```yaml prometheus\.yml\n(.*?)```", document, re.S)
    own = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch) / "prometheus.yml"
        config.write_text("global:\n  scrape_interval: 1s\n" + block.replace(":4040", f":{port}"))
        checked = subprocess.run([tools / "root/usr/bin/promtool", "check", "config", config], capture_output=True, text=True)
        if checked.returncode != 0:
            return [f"promtool check config: {checked.stdout}{checked.stderr}"]
        prometheus = start(
            [tools / "root/usr/bin/prometheus", f"--config.file={config}", f"--storage.tsdb.path={scratch}/data",
             f"--web.listen-address=127.0.0.1:{own}", "--log.level=warn"])
        try:
            scraped = lambda: value(own, 'count_over_time(up{job="cofferdam"}[1m])') or 0
            wait_until(lambda: scraped() >= SCRAPES_WANTED, SCRAPED_SECONDS_MAX, "scrapes", prometheus)
            faults = [] if value(own, 'min_over_time(up{job="cofferdam"}[1m])') == 1 else ["a scrape failed"]
            took = value(own, 'max_over_time(scrape_duration_seconds{job="cofferdam"}[1m])')
            samples = value(own, 'scrape_samples_scraped{job="cofferdam"}')
            print(f"Prometheus: {scraped():.0f} scrapes of {samples:.0f} figures, {took * 1000:.1f} ms at most")
            return faults + check_dashboard(own) + check_counted(own)
        finally:
            stop("Prometheus", prometheus)


def check_dashboard(own):
    """Every query of the dashboard has an answer."""
    dashboard = json.loads((REPOSITORY / "deploy/grafana/cofferdam.json").read_text())
    faults, asked = [], 0
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "10s").replace("$job", ".*").replace("$instance", ".*")
            found = query_result(own, query)
            asked += 1
            if not found:
                faults.append(f"{panel['title']}: no answer to {query}")
    print(f"dashboard: {asked} queries, {asked - len(faults)} answered")
    return faults if asked else ["the dashboard asks nothing"]


def check_counted(own):
    wanted = {
        'cofferdam_runs_total{language="python",outcome="timed_out"}': 3,
        'cofferdam_refusals_total{reason="invalid"}': 1,
        "cofferdam_slots": 2,
    }
    found = {query: value(own, query) for query in wanted}
    return [f"{query} is {found[query]}, not {want}" for query, want in wanted.items() if found[query] != want]


def query_result(own, query):
    status, _, text = get(own, "/api/v1/query?" + urllib.parse.urlencode({"query": query}))
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


def begin(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    connection.request("POST", "/run", json.dumps(body))
    return connection


def ask(port, body):
    answer = begin(port, body).getresponse()
    answer.read()
    return answer.status


def get(port, target, accept="*/*"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    connection.request("GET", target, headers={"accept": accept})
    answer = connection.getresponse()
    return answer.status, {key.lower(): text for key, text in answer.getheaders()}, answer.read().decode()


def start(command, **env):
    return subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **env}, stdin=subprocess.DEVNULL)


def stop(name, process):
    process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        return [f"{name} did not stop"]
    return [] if code == 0 else [f"{name} exited with {code}"]


def wait_until(condition, seconds_max, what, process=None):
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if process and process.poll() is not None:
            sys.exit(f"{what}: it ended with {process.returncode}")
        if time.monotonic() > deadline:
            sys.exit(f"waited {seconds_max} s in vain for {what}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


if __name__ == "__main__":
    main()
