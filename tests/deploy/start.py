"""Starts the service as deploy/ has it started: the mounts, the capabilities and the file systems
that a unit's or a pod's options come to, made here in a mount namespace of their own."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import claims
from tools import REPOSITORY

START_SECONDS_MAX = 30
ANSWER_SECONDS_MAX = 60

READ_ONLY_PROC = ["bus", "fs", "irq", "sys", "sysrq-trigger"]
# ProtectKernelTunables, PrivateDevices, ProtectHome, PrivateTmp, ProtectSystem=strict.
UNIT = [
    *[f"[ ! -e /proc/{name} ] || mount --bind /proc/{name} /proc/{name}" for name in READ_ONLY_PROC],
    *[f"[ ! -e /proc/{name} ] || mount -o remount,bind,ro /proc/{name}" for name in READ_ONLY_PROC],
    "mount -t tmpfs -o mode=755,nosuid dev /dev",
    *[f"mknod -m 666 /dev/{name} c {major} {minor}" for name, major, minor in
      [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9),
       ("tty", 5, 0)]],
    "mount -o remount,bind,ro,nosuid,noexec /dev",
    "mount -t tmpfs -o mode=000 home /home",
    "mount -t tmpfs -o mode=000 root /root",
    "mount -t tmpfs tmp /tmp",
    "mount -o remount,bind,ro /sys",
    # RuntimeDirectory=.
    "mkdir -p -m 700 /run/cofferdam",
    "mount --bind /run/cofferdam /run/cofferdam",
    "mount -o remount,bind,ro /",
]
# A runtime's masked and read-only paths, a tmpfs open to all on /run, an image nobody writes to.
POD = [
    "mount -t proc proc /proc",
    *[f"[ ! -e /proc/{name} ] || mount --bind /dev/null /proc/{name}"
      for name in ["kcore", "keys", "timer_list"]],
    *[f"[ ! -e /proc/{name} ] || mount -t tmpfs -o ro none /proc/{name}" for name in ["acpi", "scsi"]],
    *[f"[ ! -e /proc/{name} ] || mount --bind /proc/{name} /proc/{name}" for name in READ_ONLY_PROC],
    *[f"[ ! -e /proc/{name} ] || mount -o remount,bind,ro /proc/{name}" for name in READ_ONLY_PROC],
    "for group in $(awk '$2 ~ \"^/sys/fs/cgroup\" {print $2}' /proc/mounts); "
    "do mount -o remount,bind,ro $group; done",
    "mount -o remount,bind,ro /sys",
    "mount -t tmpfs -o mode=777 run /run",
    "mount -t tmpfs tmp /tmp",
    "mount -o remount,bind,ro /",
]
# What is made of each: its mounts, its namespaces, what `doctor` may call missing.
PLACES = {
    "systemd": (UNIT, [], ["--no-new-privs"], "strict", set()),
    "least-privilege": (POD, ["--pid", "--fork", "--kill-child", "--ipc", "--uts", "--cgroup"], [],
                        "best", {"memory", "cpu"}),
}


def check(binary):
    if os.getuid() != 0:
        return ["only root can make what a unit or a pod is made of"]
    # Where none of the mounts cover it.
    scratch = Path(tempfile.mkdtemp(prefix="cofferdam-deploy-", dir="/var/tmp"))
    try:
        shutil.copy(binary, scratch / "cofferdam")
        shutil.copytree(REPOSITORY / "langs", scratch / "langs", symlinks=True)
        faults = [f"{name}: {fault}" for name, place in PLACES.items()
                  for fault in place_faults(scratch, name, *place)]
        return faults + [f"CAP_{capability} is not needed" for capability in claims.CAPABILITIES
                         if is_needless(scratch, capability)]
    finally:
        shutil.rmtree(scratch)


def keeping(capabilities):
    return "--bounding-set=-all," + ",".join(f"+{name.lower()}" for name in sorted(capabilities))


def is_needless(scratch, capability):
    """Whether all can be enforced and a workspace run without it."""
    def tell(*command):
        without = keeping(claims.CAPABILITIES - {capability})
        return subprocess.run(["setpriv", without, scratch / "cofferdam", *command], text=True,
                              capture_output=True)
    example = scratch / "langs" / "python" / "example"
    done = tell("run", "--workspace", scratch / "langs" / "python", "--lang", "python",
                example / "solution.py", "--asserts", example / "asserts.json")
    return done.returncode == 0 and not missing_of(tell("doctor", "--json"))


def missing_of(doctor):
    """The controls that `doctor --json` calls missing."""
    controls = json.loads(doctor.stdout)["controls"]
    return {control["name"] for control in controls if control["status"] == "missing"}


def place_faults(scratch, name, mounts, namespaces, privileges, isolation, missing):
    inside = ["unshare", "--mount", "--propagation", "private", *namespaces, "sh", "-ec",
              "\n".join([*mounts, 'exec "$@"']), "sh",
              "setpriv", keeping(claims.CAPABILITIES), *privileges]
    doctor = subprocess.run([*inside, scratch / "cofferdam", "doctor", "--json"], text=True,
                            capture_output=True)
    found = missing_of(doctor)
    if found != missing:
        return [f"missing is {found or 'nothing'}: {doctor.stdout}{doctor.stderr}"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    env = {"PATH": os.environ["PATH"], "ISOLATION": isolation, "LANGS_DIR": f"{scratch}/langs"}
    server = subprocess.Popen([*inside, scratch / "cofferdam", "serve", "--addr",
                               f"127.0.0.1:{port}"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        faults = run_faults(server, port)
    finally:
        if server.poll() is None:
            # Of a namespace's first process, `unshare` stands before it.
            os.kill(service_of(server.pid), signal.SIGTERM)
        _, log = server.communicate(timeout=60)
    if server.returncode != 0:
        faults.append(f"it ended with {server.returncode}")
    print(f"start: {name}: not enforced: {', '.join(sorted(missing)) or 'nothing'}")
    return [f"{fault}\n{log}" for fault in faults]


def service_of(pid):
    """The one that has been executed last, going down from `pid`."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{pid}/comm").read_text().strip() == "cofferdam":
            break
        pid = int(children[0])
    return pid


def run_faults(server, port):
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            status, text = ask(port, "GET", "/health")
            break
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                return ["it does not start"]
            time.sleep(0.05)
    faults = [] if (status, text) == (200, "ok\n") else [f"/health: {status} {text}"]
    status, text = run(port, "def solution(a, b):\n    return a + b\n", "[[1, 2], [40, 2]]")
    values = [item["value"] for item in json.loads(json.loads(text)["stdout"])] \
        if status == 200 and json.loads(text)["exit_code"] == 0 else None
    if values != [3, 42]:
        faults.append(f"a solution: {status} {text}")
    status, text = run(port, "def solution():\n    while True: pass\n", "[[]]", timeout="500ms")
    if status != 200 or json.loads(text)["exit_code"] is not None:
        faults.append(f"a solution without an end: {status} {text}")
    return faults


def run(port, solution, arguments, timeout="30s"):
    return ask(port, "POST", "/run", json.dumps({
        "lang_slug": "python", "solution_text": solution, "timeout": timeout,
        "asserts": '{"arguments": %s}' % arguments}))


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
