"""The plugin of pytest that reports every test. It is imported before any module of the sandbox."""

import os
import pathlib
import sys
import types
import unittest

import _pytest.outcomes
import _pytest.skipping
import pytest

PASSED, FAILED, SKIPPED, XFAILED = "passed", "failed", "skipped", "xfailed"
PHASES = {"setup", "call", "teardown"}
# Tests reported in one frame, which has to be smaller than a pipe's buffer.
BATCH_TESTS_MAX = 50
# Options of plugins that run tests in other processes. Each outcome has to come from this one.
ONE_PROCESS = {"numprocesses": None, "dist": "no", "tx": [], "looponfail": False, "forked": False}
# Hooks that are not called for the canary, so that no summary counts it.
UNTOLD = {"pytest_runtest_logstart", "pytest_runtest_logfinish", "pytest_runtest_logreport",
          "pytest_exception_interact"}
SKIPS = (_pytest.outcomes.Skipped, unittest.SkipTest)
IMPERATIVE = _pytest.outcomes.XFailed
evaluate_skip_marks = _pytest.skipping.evaluate_skip_marks
evaluate_xfail_marks = _pytest.skipping.evaluate_xfail_marks


class Attempt:
    """What one run of a test has shown so far."""

    def __init__(self):
        self.entered = set()
        self.reported = set()
        self.raised = []
        self.is_denied = False


class Marks:
    """What a test says of itself: that it is skipped, or how it is expected to fail."""

    def __init__(self, item=None):
        self.is_skipped, self.raises = False, None
        if item is None:
            return
        own = [getattr(item, "obj", None), getattr(item, "cls", None)]
        try:
            self.is_skipped = evaluate_skip_marks(item) is not None or any(
                getattr(one, "__unittest_skip__", False) is True for one in own)
            expected = evaluate_xfail_marks(item)
        except Exception:
            # A mark with a fault: the setup of the test raises the same.
            return
        if expected is not None and not item.config.option.runxfail:
            self.raises = expected.raises or BaseException
        elif any(getattr(one, "__unittest_expecting_failure__", False) is True for one in own):
            self.raises = BaseException

    def expect(self, error):
        """Whether the test is expected to raise this."""
        if self.raises is None or isinstance(error, SKIPS):
            return False
        if isinstance(error, IMPERATIVE):
            return True
        matches = getattr(self.raises, "matches", None)
        return matches(error) if matches else isinstance(error, self.raises)


class Recorder:
    """Reports tests, what they raise and how they end.

    The wrappers of phases are the innermost ones, so that other hooks cannot change what they see. A test passes if
    nothing of it raised and pytest reports all of its phases as passed.
    """

    def __init__(self, order, path, send):
        self.canary_name, self.is_marked = order["canary"], order["marked"]
        self.path, self.send = path, send
        self.tests, self.attempts, self.waiting, self.count = {}, {}, [], 0
        self.canary, self.canary_end = None, None
        self.is_guarded, self.has_begun = False, False

    # Plugins.

    def pytest_plugin_registered(self, manager):
        """Has the plugins of the environment loaded before the first that can come from the sandbox."""
        if self.is_guarded:
            return
        self.is_guarded = True
        consider, load = manager.consider_preparse, manager.load_setuptools_entrypoints

        def consider_preparse(args, *, exclude_only=False):
            if not exclude_only and not self.path.is_open:
                consider(args, exclude_only=True)
                seen, sys.path[:] = list(sys.path), self.path.environment
                if not os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD") and "--disable-plugin-autoload" not in args:
                    self.load_plugins(load)
                sys.path[:] = seen
                self.path.open()
            return consider(args, exclude_only=exclude_only)

        manager.consider_preparse = consider_preparse

    def load_plugins(self, load):
        """Loads each plugin of the environment. pytest itself tries those again that need the sandbox."""
        for package in self.path.distributions():
            for entry in package.entry_points:
                if entry.group == "pytest11":
                    try:
                        load("pytest11", name=entry.name)
                    except ImportError:
                        pass

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config):
        """Runs all tests in this process."""
        self.path.unbound_distributions()
        for name, value in ONE_PROCESS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self):
        """From here on the canary has to run."""
        self.has_begun = True

    # Collection.

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item):
        """Records a test with the marks that it has now: hooks and tested code can add others later."""
        self.tests[id(item)] = (item, self.count, Marks(item))
        self.count += 1
        _, separator, name = item.nodeid.partition("::")
        self.waiting.append([item.nodeid, os.path.relpath(item.path) + separator + name])
        if len(self.waiting) == BATCH_TESTS_MAX:
            self.flush()

    def flush(self):
        """Reports the tests that are recorded."""
        if self.waiting:
            tests, self.waiting = self.waiting, []
            self.send(tests=tests)

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_make_collect_report(self, collector):
        """Reports what cannot be collected. A file that skips itself has tests that do not run."""
        outcome = yield
        if outcome.excinfo or outcome.get_result().outcome != PASSED:
            self.send(broken=collector.nodeid)

    # The phases of a test.

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_setup(self, item):
        """Begins an attempt."""
        self.attempts[id(item)] = Attempt()
        self.note(item, "setup", (yield))

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item):
        """Sees what the test raises."""
        self.note(item, "call", (yield))

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item):
        """Sees what its teardown raises."""
        self.note(item, "teardown", (yield))

    def note(self, item, phase, outcome):
        """Records what a phase raised."""
        attempt = self.attempts.setdefault(id(item), Attempt())
        attempt.entered.add(phase)
        if outcome.excinfo:
            attempt.raised.append(outcome.excinfo[1])
        # What tests of unittest raise is caught and kept here.
        attempt.raised += [info.value for info in getattr(item, "_excinfo", None) or []]

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """Sees what pytest makes of a phase, and reports the outcome after the last one."""
        before = call.excinfo
        outcome = yield
        attempt = self.attempts.setdefault(id(item), Attempt())
        attempt.raised += [info.value for info in (before, call.excinfo) if info is not None]
        made = None if outcome.excinfo else outcome.get_result().outcome
        if type(made) is str and made == PASSED:
            attempt.reported.add(call.when)
        elif type(made) is not str or made != SKIPPED:
            attempt.is_denied = True
        if call.when == "teardown" and id(item) in self.tests:
            self.finish(item, attempt)

    def finish(self, item, attempt):
        """Reports how a test ended."""
        self.flush()
        _, number, marks = self.tests[id(item)]
        ended = self.judge(attempt, marks)
        if item is self.canary:
            self.canary_end = ended
        else:
            self.send(end=[number, ended])

    def judge(self, attempt, marks):
        """The outcome of an attempt."""
        if not attempt.raised:
            is_whole = attempt.entered == PHASES and attempt.reported == PHASES
            return PASSED if is_whole and not attempt.is_denied else FAILED
        if all(isinstance(error, SKIPS) for error in attempt.raised):
            return SKIPPED if marks.is_skipped or not self.is_marked else FAILED
        if not attempt.is_denied and all(marks.expect(error) for error in attempt.raised):
            return XFAILED
        return FAILED

    # The end.

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        """Runs the canary: after every test and however the tests ended, outside of every limit and count."""
        self.flush()
        try:
            session._setupstate.teardown_exact(None)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
        self.sing(session)
        yield

    def sing(self, session):
        """Runs a test that has to fail. If a fixture of the suite skips it, it runs without them."""
        hook = session.config.hook
        modules = (item.getparent(pytest.Module) for item, _, _ in self.tests.values())
        # A collector beside that of the first test has the same fixtures.
        parent = next((module.parent for module in modules if module), session)
        for has_fixtures in (True, False):
            self.canary = make_canary(parent, self.canary_name, has_fixtures)
            self.tests[id(self.canary)] = (self.canary, None, Marks())
            self.attempts.pop(id(self.canary), None)
            hook.pytest_runtest_protocol(item=self.canary, nextitem=None)
            attempt = self.attempts.get(id(self.canary))
            if not (attempt and attempt.raised and all(isinstance(error, SKIPS) for error in attempt.raised)):
                break
        if self.canary_end is not None:
            self.send(canary=self.canary_end)


class QuietHooks:
    """The hooks of all plugins and conftest files, without those that would count a test."""

    def __init__(self, hook):
        self.hook = hook

    def __getattr__(self, name):
        return (lambda **_: None) if name in UNTOLD else getattr(self.hook, name)


class CanaryModule(pytest.Module):
    """A module that no file holds."""

    def _getobj(self):
        return types.ModuleType(self.path.stem)


class Canary(pytest.Function):
    """A test that fails, run as every other."""

    @property
    def ihook(self):
        """The hooks that it runs by."""
        return QuietHooks(self.config.hook)


def make_canary(parent, name, has_fixtures):
    """Makes the canary, with the fixtures that each test below `parent` has or without."""
    def fail():
        raise AssertionError("the canary has to fail")

    folder = getattr(parent, "path", None) or parent.config.rootpath
    module = CanaryModule.from_parent(parent, path=pathlib.Path(folder, name + ".py"))
    fixtures = {} if has_fixtures else {"fixtureinfo": bare_fixtures()}
    return Canary.from_parent(module, name=name, callobj=fail, **fixtures)


def bare_fixtures():
    """No fixture, in the form that pytest has for it."""
    return types.SimpleNamespace(argnames=(), initialnames=(), names_closure=[], name2fixturedefs={})
