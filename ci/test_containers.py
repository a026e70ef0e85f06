#!/usr/bin/env python3
"""Starts the service in the common kinds of containers. Asks doctor in each what is enforced, posts
hostile programs, and compares both with the table in docs/deploy.md.

    test_containers.py COFFERDAM
    test_containers.py --write-table     write the table into docs/deploy.md

COFFERDAM is the binary to test. Needs Debian and root. Installs podman, which runs the containers
with runc, where it is missing. Leaves nothing behind but the packages.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import podman
import rig
from containers import expected, image, table

TAG = "localhost/cofferdam-containers:test"
NEEDED = {**podman.NEEDED, "busybox": "busybox-static", "make": "make"}


def main():
    [binary] = rig.arguments(__doc__, 1)
    if binary == "--write-table":
        table.write()
        return
    rig.require_root("it runs privileged containers")
    binary = Path(binary).resolve()
    rig.in_private_mounts()
    rig.install(rig.missing_packages(NEEDED))
    with podman.Podman() as engine:
        rig.say(rig.run([*engine.command, "--version"]).strip(), "with runc")
        image.write(engine.scratch / "image.tar", binary)
        rig.run([*engine.command, "import", "--quiet", engine.scratch / "image.tar", TAG])
        faults = table.faults()
        for column, (name, flags) in enumerate(expected.CONTAINERS.items()):
            faults += Container(engine, name, flags, column).check()
        faults += remapped_faults(engine)
    rig.finish(faults, "each kind holds what docs/deploy.md says")


def remapped_faults(engine):
    """What is wrong with a sandbox in a container whose root is an unprivileged user on the host."""
    done = rig.attempt(
        engine.run_command("--network", "none", *expected.REMAPPED, TAG,
                           "cofferdam", "exec", "--", "sh", "-c", "id -u; getent hosts localhost"),
        rig.ANSWER_SECONDS_MAX)
    holds = done.stdout.splitlines() == expected.GOOD_LINES[1:3]
    rig.say(f"remapped: {'holds' if holds else 'FAILS'}")
    return [] if holds else [f"remapped: {done.stdout}{done.stderr}"]


class Container:
    """One kind of container, and its column of the table."""

    def __init__(self, engine, name, flags, column):
        self.engine, self.name, self.flags, self.column = engine, name, flags, column
        self.seen, self.faults = {}, []

    def check(self):
        """Returns what is wrong with it."""
        began = time.monotonic()
        self.ask_doctor()
        port = rig.free_port()
        server = subprocess.Popen(
            [*self.command("--name", self.name, "--env", f"PORT={port}"), "serve"],
            stderr=subprocess.PIPE, text=True)
        log = Log(server.stderr)
        try:
            if rig.first_health(server, port):
                self.seen["the service"] = "starts"
                self.post_programs(port)
            else:
                self.seen["the service"] = "refused"
        finally:
            code = self.engine.stop(self.name, server)
        self.judge(code, log.text())
        seconds = time.monotonic() - began
        verdict = "holds" if not self.faults else "FAILS"
        rig.say(f"{self.name}: {verdict}, {seconds:.1f} s")
        return [f"{self.name}: {fault}" for fault in self.faults]

    def command(self, *options):
        return self.engine.run_command("--network", "host", "--env", "LANGS_DIR=/langs",
                                       *options, *self.flags, TAG, "cofferdam")

    def ask_doctor(self):
        done = rig.attempt([*self.command(), "doctor", "--json"], rig.ANSWER_SECONDS_MAX, stderr=None)
        report = json.loads(done.stdout)
        if report["environment"] != "podman":
            self.faults.append(f"doctor reports the environment {report['environment']}")
        reasons = []
        for control in report["controls"]:
            name, status, fix = control["name"], control["status"], control["fix"]
            if name in expected.OF_THE_HOST:
                continue
            self.seen[name] = status
            if status != "enforced":
                reasons.append(f"{self.name}: {name}: {status}: {control['reason']}")
                if not fix:
                    self.faults.append(f"{name}: no fix")
        if self.name != "defaults":
            for reason in reasons:
                rig.say(reason)

    def post_programs(self, port):
        post = lambda script: post_script(port, script)
        self.seen["a good run"] = outcome(post(expected.GOOD), self.is_good)
        self.seen["writing outside its folders"] = outcome(post(expected.WRITES), lambda out: out == "", "read-only")
        self.seen["a fork bomb"] = outcome(post(expected.FORK_BOMB), lambda out: out == "")
        if self.seen["a fork bomb"] == "exited":
            # A process limit that is not a cgroup's is not reported as the outcome.
            self.seen["a fork bomb"] = "refused"
        network = post(expected.NETWORK.format(port=port))
        self.seen["the network"] = outcome(network, lambda out: out == "", "unreachable")
        many = at_once(2, lambda: post(expected.MANY))
        apart = [outcome(one, lambda out: out == "all there\n", "apart") for one in many]
        self.seen["processes of a second run"] = apart[0] if apart[0] == apart[1] else str(apart)
        if self.seen.get("memory") == "enforced":
            self.seen["too much memory"] = outcome(post(expected.MEMORY_HOG))
        # The service still works after all of these.
        after = outcome(post(expected.GOOD), self.is_good)
        if after != "exited":
            self.faults.append(f"a good run at the end: {after}")

    def is_good(self, stdout):
        lines = stdout.splitlines()
        groups = expected.GROUPS.get(self.name, "")
        if len(lines) == len(expected.GOOD_LINES) and int(lines[4]) < 10 and lines[5] == groups:
            lines[4:6] = ["PROCESSES", "GROUPS"]
        return lines == expected.GOOD_LINES

    def judge(self, code, log):
        for row, cells in {**expected.CONTROLS, **expected.RUNS}.items():
            want, seen = cells[self.column], self.seen.pop(row, "-")
            if seen != want:
                self.faults.append(f"{row}: want {want}, got {seen}")
        self.faults += [f"{row} is not in the table: {seen}" for row, seen in self.seen.items()]
        starts = expected.RUNS["the service"][self.column] == "starts"
        if starts and code != 0:
            self.faults.append(f"exited with {code} after SIGTERM")
        if not starts:
            # The refusal names the flags of the containers that are tested here.
            wanted = [" ".join(flags) for flags in expected.CONTAINERS.values() if flags]
            self.faults += [f"the refusal does not name {flags!r}" for flags in wanted if flags not in log]
            if code != 1:
                self.faults.append(f"the refusal's exit code is {code}")
        for control in ["memory", "cpu"]:
            missing = starts and expected.CONTROLS[control][self.column] != "enforced"
            if missing != (f"not enforced: {control}: " in log):
                self.faults.append(f"the start-up log is wrong about {control}")
        if self.faults:
            print(log, file=sys.stderr)


class Log:
    """What a process writes to its stderr, read by a thread so that the process never blocks."""

    def __init__(self, pipe):
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(pipe))
        self.reader.start()

    def text(self):
        self.reader.join()
        return "".join(self.lines)


def post_script(port, script):
    """The answer to a posted script: status, outcome and body."""
    answer = rig.post_run(
        port, {"lang_slug": "shell", "solution_text": script, "timeout": "20s"})
    return answer.status, answer.headers.get("X-Run-Outcome"), answer.text


def outcome(answer, is_right=None, word=None):
    """The outcome, or `word` in its place; the whole answer if it is not as wanted."""
    status, reported, text = answer
    if status != 200 or is_right and not is_right(json.loads(text)["stdout"]):
        return f"{status} {reported} {text}"
    return word or reported


def at_once(count, work):
    results = [None] * count
    def fill(index):
        results[index] = work()
    threads = [threading.Thread(target=fill, args=[index]) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


if __name__ == "__main__":
    rig.start(main)
