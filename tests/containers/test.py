#!/usr/bin/env python3
"""Starts the service in the containers that people have, asks doctor in each what is enforced
there and posts programs that try, and holds both to the table in docs/deploy.md.

    test.py COFFERDAM

COFFERDAM is the binary to try. Root, Debian and its packages are all it counts on: podman, which
runs the containers with runc, is installed where it is missing. Nothing of it stays but the
packages. Python 3.11, standard library only.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import document
import expected
import image

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 40
ANSWER_SECONDS_MAX = 60
TAG = "localhost/cofferdam-containers:test"
NEEDED = {"podman": "podman", "runc": "runc", "busybox": "busybox-static", "make": "make"}
# Engines ask for more than a machine may give, so it is said.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if os.getuid() != 0:
        sys.exit("containers: only root can run a privileged container")
    binary = Path(sys.argv[1]).resolve()
    if "CONTAINERS_TEST_PRIVATE" not in os.environ:
        # What the engine mounts and does not unmount goes with this process.
        os.environ["CONTAINERS_TEST_PRIVATE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *sys.orig_argv])
    install_needed()
    groups_before = parent_groups()
    scratch = Path(tempfile.mkdtemp(prefix="cofferdam-containers-", dir="/var/tmp"))
    engine = ["podman", "--root", f"{scratch}/store", "--runroot", f"{scratch}/run",
              "--cgroup-manager", "cgroupfs", "--runtime", "runc"]
    try:
        print("containers:", subprocess.check_output([*engine, "--version"], text=True).strip(),
              "with runc", flush=True)
        image.write(scratch / "image.tar", binary)
        subprocess.run([*engine, "import", "--quiet", scratch / "image.tar", TAG],
                       check=True, stdout=subprocess.DEVNULL)
        faults = document.faults()
        for column, (name, flags) in enumerate(expected.CONTAINERS.items()):
            faults += Container(engine, name, flags, column).check()
        faults += remapped_faults(engine)
    finally:
        subprocess.run([*engine, "rm", "--all", "--force"], stdout=subprocess.DEVNULL)
        subprocess.run(["umount", "--recursive", "--quiet", scratch / "store" / "overlay"])
        shutil.rmtree(scratch)
        remove_groups(parent_groups() - groups_before)
    if faults:
        sys.exit("\n".join(faults))
    print("containers: each holds what docs/deploy.md says")


def remapped_faults(engine):
    """What is wrong with a box in a container whose root is nobody on the host."""
    done = subprocess.run(
        [*engine, "run", "--rm", "--network", "none", *LIMITS, *expected.REMAPPED, TAG,
         "cofferdam", "exec", "--", "sh", "-c", "id -u; getent hosts localhost"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=ANSWER_SECONDS_MAX)
    holds = done.stdout.splitlines() == expected.GOOD_LINES[1:3]
    print(f"containers: remapped: {'holds' if holds else 'FAILS'}", flush=True)
    return [] if holds else [f"remapped: {done.stdout}{done.stderr}"]


class Container:
    """One kind of container, and the column of the table that it has to fill."""

    def __init__(self, engine, name, flags, column):
        self.engine, self.name, self.flags, self.column = engine, name, flags, column
        self.seen, self.faults = {}, []

    def check(self):
        """What is wrong with it, in words."""
        began = time.monotonic()
        self.ask_doctor()
        port = free_port()
        server = subprocess.Popen(
            [*self.command(["--name", self.name, "--env", f"PORT={port}"]), "serve"],
            stderr=subprocess.PIPE, text=True)
        said = Said(server.stderr)
        try:
            if wait_until_ready(server, port):
                self.seen["the service"] = "starts"
                self.post_programs(port)
            else:
                self.seen["the service"] = "refused"
        finally:
            subprocess.run([*self.engine, "kill", "--signal", "TERM", self.name],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            code = server.wait(STOP_SECONDS_MAX)
        self.judge(code, said.text())
        seconds = time.monotonic() - began
        verdict = "holds" if not self.faults else "FAILS"
        print(f"containers: {self.name}: {verdict}, {seconds:.1f} s", flush=True)
        return [f"{self.name}: {fault}" for fault in self.faults]

    def command(self, options):
        return [*self.engine, "run", "--rm", "--network", "host", "--env", "LANGS_DIR=/langs",
                *LIMITS, *options, *self.flags, TAG, "cofferdam"]

    def ask_doctor(self):
        done = subprocess.run([*self.command([]), "doctor", "--json"], text=True,
                              stdout=subprocess.PIPE, timeout=ANSWER_SECONDS_MAX)
        report = json.loads(done.stdout)
        if report["environment"] != "podman":
            self.faults.append(f"doctor takes it for {report['environment']}")
        reasons = []
        for control in report["controls"]:
            name, status, fix = control["name"], control["status"], control["fix"]
            if name in expected.OF_THE_HOST:
                continue
            self.seen[name] = status
            if status != "enforced":
                reasons.append(f"containers: {self.name}: {name}: {status}: {control['reason']}")
                if not fix:
                    self.faults.append(f"{name}: no fix")

        if self.name != "defaults":
            print(*reasons, sep="\n", flush=True)

    def post_programs(self, port):
        post = lambda script: run(port, script)
        self.seen["a good run"] = outcome(post(expected.GOOD), self.is_good)
        self.seen["what is not its own"] = outcome(post(expected.WRITES), lambda out: out == "", "read-only")
        self.seen["a fork bomb"] = outcome(post(expected.FORK_BOMB), lambda out: out == "")
        if self.seen["a fork bomb"] == "exited":
            # A limit that is no cgroup's leaves no trace but this.
            self.seen["a fork bomb"] = "refused"
        network = post(expected.NETWORK.format(port=port))
        self.seen["the network"] = outcome(network, lambda out: out == "", "unreachable")
        many = at_once(2, lambda: post(expected.MANY))
        apart = [outcome(one, lambda out: out == "all there\n", "apart") for one in many]
        self.seen["its neighbour's processes"] = apart[0] if apart[0] == apart[1] else str(apart)
        if self.seen.get("memory") == "enforced":
            self.seen["too much memory"] = outcome(post(expected.MEMORY_HOG))
        # After all that, the service is as it was.
        after = outcome(post(expected.GOOD), self.is_good)
        if after != "exited":
            self.faults.append(f"a good run at the end: {after}")

    def is_good(self, stdout):
        lines = stdout.splitlines()
        groups = expected.GROUPS.get(self.name, "")
        if len(lines) == len(expected.GOOD_LINES) and int(lines[4]) < 10 and lines[5] == groups:
            lines[4:6] = ["PROCESSES", "GROUPS"]
        return lines == expected.GOOD_LINES

    def judge(self, code, said):
        for row, cells in {**expected.CONTROLS, **expected.RUNS}.items():
            want, seen = cells[self.column], self.seen.pop(row, "-")
            if seen != want:
                self.faults.append(f"{row}: want {want}, seen {seen}")
        self.faults += [f"{row} is not in the table: {seen}" for row, seen in self.seen.items()]
        starts = expected.RUNS["the service"][self.column] == "starts"
        if starts and code != 0:
            self.faults.append(f"SIGTERM ended it with {code}")
        if not starts:
            # The flags it names are those of the containers that are tried here.
            wanted = [" ".join(flags) for flags in expected.CONTAINERS.values() if flags]
            self.faults += [f"does not name {flags!r}" for flags in wanted if flags not in said]
            if code != 1:
                self.faults.append(f"the refusal's exit code is {code}")
        for control in ["memory", "cpu"]:
            missing = starts and expected.CONTROLS[control][self.column] != "enforced"
            if missing != (f"not enforced: {control}: " in said):
                self.faults.append(f"the start does not tell the truth of {control}")
        if self.faults:
            print(said, file=sys.stderr)


class Said:
    """What a process writes to its stderr, read as it comes."""

    def __init__(self, pipe):
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(pipe))
        self.reader.start()

    def text(self):
        self.reader.join()
        return "".join(self.lines)


def run(port, script):
    """The answer to a posted script: status, outcome, stdout and stderr."""
    body = json.dumps({"lang_slug": "shell", "solution_text": script, "timeout": "20s"})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("POST", "/run", body)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("X-Run-Outcome"), answer.read().decode()
    finally:
        connection.close()


def outcome(answer, is_right=None, word=None):
    """The outcome's word, or another that says what it showed; all of the answer where it is wrong."""
    status, told, text = answer
    if status != 200 or is_right and not is_right(json.loads(text)["stdout"]):
        return f"{status} {told} {text}"
    return word or told


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


def wait_until_ready(server, port):
    """Whether the service answers; false where it ended instead."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if server.poll() is not None:
            return False
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
        except OSError:
            time.sleep(0.05)
    sys.exit("containers: the service neither answers nor ends")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def install_needed():
    missing = [package for command, package in NEEDED.items() if not shutil.which(command)]
    if missing:
        apt_get = ["apt-get", "-q", "-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run([*apt_get, "update"], check=True, env=env)
        subprocess.run([*apt_get, "install", "-y", "--no-install-recommends", *missing],
                       check=True, env=env)


def parent_groups():
    """The engine's cgroups, which it never removes."""
    root = Path("/sys/fs/cgroup")
    return {path for pattern in ["libpod_parent", "*/libpod_parent"] for path in root.glob(pattern)}


def remove_groups(groups):
    for group in groups:
        for path, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(path)
            except OSError as error:
                print(f"containers: {path} stays: {error.strerror}", file=sys.stderr)


if __name__ == "__main__":
    # So that a signal still leads through what tidies up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
