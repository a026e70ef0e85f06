"""The log of a guest: its boot, and the result of every suite."""

import json
import re

import rig

# The controls that doctor must report as enforced by cgroup version 2.
BY_VERSION_2 = {"memory", "processes", "cpu", "cpu time", "cgroup kill"}


class GuestLog:
    def __init__(self, text, console):
        self.text, self.console = text.replace("\r", ""), console.replace("\r", "")
        found = re.findall(r"^== begin (\S+) (\S+)\n(.*?)^== end \1 \2 (\d+)$", self.text,
                           re.MULTILINE | re.DOTALL)
        self.suites = {(scene, suite): (text, int(code)) for scene, suite, text, code in found}

    def passed(self, scene, suite):
        """The names of the passed tests."""
        return re.findall(r"^test (\S+) \.\.\. ok$", self.suites[scene, suite][0], re.MULTILINE)

    def show(self, series, seconds):
        up = re.search(r"^== up (\S+)$", self.text, re.MULTILINE)
        rig.say(f"{series}: user space after {up.group(1) if up else '?'} s, over after {seconds:.0f} s")
        for scene, suite in self.suites:
            if suite == "doctor":
                rig.say(f"{series}: {scene}: doctor: {self.suites[scene, suite][0].strip()}")
                continue
            passed = self.passed(scene, suite)
            rig.say(f"{series}: {scene}: {suite}: {len(passed)} passed")
            for name in passed:
                print(f"    {name}")

    def faults(self, expected):
        """Yields what is wrong. `expected` has scene, suite, and parts of names; for each part a test
        with that part in its name must have passed."""
        if "Kernel panic" in self.console:
            yield "the kernel panicked"
        if "== over" not in self.text.splitlines():
            yield "the guest did not finish"
        for scene, suite, names in expected:
            for fault in self.faults_of(scene, suite, names):
                yield f"{scene}: {suite}: {fault}"

    def faults_of(self, scene, suite, names):
        if (scene, suite) not in self.suites:
            yield "did not finish"
            return
        text, code = self.suites[scene, suite]
        if code != 0:
            yield f"exited with {code}"
        if suite == "doctor":
            yield from doctor_faults(text)
            return
        passed = self.passed(scene, suite)
        if re.search(r"^SKIP|^test \S+ \.\.\. ignored", text, re.MULTILINE):
            yield "skipped a test"
        for name in names:
            if not any(name in test for test in passed):
                yield f"no test {name} passed"


def doctor_faults(text):
    """Every control must be enforced, and those of cgroups by version 2. Programs can share a sandbox."""
    try:
        report = json.loads(text)
        controls, workspaces = ({control["name"]: control for control in report[part]}
                                for part in ("controls", "workspaces"))
        shared = workspaces["shared sandbox"]
    except (ValueError, KeyError, TypeError):
        yield f"printed {text!r}"
        return
    for name, control in [*controls.items(), ("shared sandbox", shared)]:
        if control["status"] != "enforced" or (name in BY_VERSION_2 and control["reason"] != "cgroup2"):
            yield f"{name} is {control['status']}: {control['reason']}"
    for name in sorted(BY_VERSION_2 - controls.keys()):
        yield f"does not report {name}"
