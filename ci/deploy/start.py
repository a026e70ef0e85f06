"""Starts the service with the mounts and capabilities that the options of the unit and of the pod in
deploy/ lead to, in a mount namespace of its own."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import rig
from rig import REPOSITORY

from . import sources

START_SECONDS_MAX = 30

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
# The masked and read-only paths of a container runtime, a tmpfs on /run that everyone may write to,
# a read-only image.
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
# For each: its mounts, its namespaces, its privileges, ISOLATION, and what `doctor` reports missing.
SETTINGS = {
    "systemd": (UNIT, [], ["--no-new-privs"], "strict", set()),
    "least-privilege": (POD, ["--pid", "--fork", "--kill-child", "--ipc", "--uts", "--cgroup"], [],
                        "best", {"memory", "cpu"}),
}


def check(binary):
    if os.getuid() != 0:
        return ["needs root: it mounts what a unit or a pod mounts"]
    # None of the mounts covers /var/tmp.
    scratch = Path(tempfile.mkdtemp(prefix="cofferdam-deploy-", dir="/var/tmp"))
    try:
        shutil.copy(binary, scratch / "cofferdam")
        shutil.copytree(REPOSITORY / "langs", scratch / "langs", symlinks=True)
        faults = [f"{name}: {fault}" for name, setting in SETTINGS.items()
                  for fault in setting_faults(scratch, name, *setting)]
        return faults + [f"CAP_{capability} is not needed" for capability in sources.CAPABILITIES
                         if is_needless(scratch, capability)]
    finally:
        shutil.rmtree(scratch)


def keeping(capabilities):
    return "--bounding-set=-all," + ",".join(f"+{name.lower()}" for name in sorted(capabilities))


def is_needless(scratch, capability):
    """Whether everything is enforced and a check runs without the capability."""
    def without_it(*command):
        without = keeping(sources.CAPABILITIES - {capability})
        return rig.attempt(["setpriv", without, scratch / "cofferdam", *command])
    example = scratch / "langs" / "python" / "example"
    done = without_it("run", "--workspace", scratch / "langs" / "python", "--lang", "python",
                example / "solution.py", "--asserts", example / "asserts.json")
    return done.returncode == 0 and not missing_of(without_it("doctor", "--json"))


def missing_of(doctor):
    """The controls that `doctor --json` calls missing."""
    controls = json.loads(doctor.stdout)["controls"]
    return {control["name"] for control in controls if control["status"] == "missing"}


def setting_faults(scratch, name, mounts, namespaces, privileges, isolation, missing):
    inside = [*rig.PRIVATE_MOUNTS, *namespaces, "sh", "-ec",
              "\n".join([*mounts, 'exec "$@"']), "sh",
              "setpriv", keeping(sources.CAPABILITIES), *privileges]
    doctor = rig.attempt([*inside, scratch / "cofferdam", "doctor", "--json"])
    found = missing_of(doctor)
    if found != missing:
        return [f"missing is {found or 'nothing'}: {doctor.stdout}{doctor.stderr}"]
    port = rig.free_port()
    env = {"PATH": os.environ["PATH"], "ISOLATION": isolation, "LANGS_DIR": f"{scratch}/langs"}
    server = subprocess.Popen([*inside, scratch / "cofferdam", "serve", "--addr",
                               f"127.0.0.1:{port}"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        faults = run_faults(server, port)
    finally:
        if server.poll() is None:
            # With a PID namespace, `unshare` is the parent of the service.
            os.kill(service_of(server.pid), signal.SIGTERM)
        _, log = server.communicate(timeout=60)
    if server.returncode != 0:
        faults.append(f"exited with {server.returncode} after SIGTERM")
    print(f"start: {name}: not enforced: {', '.join(sorted(missing)) or 'nothing'}")
    return [f"{fault}\n{log}" for fault in faults]


def service_of(pid):
    """The process below `pid` that became cofferdam, or the last child."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{pid}/comm").read_text().strip() == "cofferdam":
            break
        pid = int(children[0])
    return pid


def run_faults(server, port):
    health = rig.first_health(server, port, START_SECONDS_MAX)
    if health is None:
        return ["it does not start"]
    faults = [] if (health.status, health.text) == (200, "ok\n") else [f"/health: {health}"]
    answer = post(port, "def solution(a, b):\n    return a + b\n", "[[1, 2], [40, 2]]")
    values = [item["value"] for item in json.loads(json.loads(answer.text)["stdout"])] \
        if answer.status == 200 and json.loads(answer.text)["exit_code"] == 0 else None
    if values != [3, 42]:
        faults.append(f"a solution: {answer.status} {answer.text}")
    answer = post(port, "def solution():\n    while True: pass\n", "[[]]", timeout="500ms")
    if answer.status != 200 or json.loads(answer.text)["exit_code"] is not None:
        faults.append(f"a solution that never ends: {answer.status} {answer.text}")
    return faults


def post(port, solution, arguments, timeout="30s"):
    return rig.post_run(port, {
        "lang_slug": "python", "solution_text": solution, "timeout": timeout,
        "asserts": '{"arguments": %s}' % arguments})
