"""Runs pytest over tested code and reports each outcome to the supervisor.

The supervisor sends this file, `recorder.py` and its order over stdin, so none of them is a file of the Cell. Tested
code runs in this process later: what it must not reach is taken, used or closed before the sandbox is on the path.
"""

import ast
import fcntl
import hmac
import importlib.metadata
import json
import os
import random
import resource
import signal
import site
import sys
import types

# Modules that pytest imports only when it needs them. Later the sandbox could answer for them.
import difflib  # noqa: F401
import doctest  # noqa: F401
import logging.handlers  # noqa: F401
import pdb  # noqa: F401
import pprint  # noqa: F401
import unittest.mock  # noqa: F401
import xml.etree.ElementTree  # noqa: F401

# Programs often close or replace the descriptors below this one.
DESCRIPTOR_MIN, DESCRIPTOR_MAX = 128, 60_000


def take_stdout():
    """Takes descriptor 1 away: what tests print goes to stderr. Returns a descriptor that no program inherits."""
    limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], DESCRIPTOR_MAX)
    lowest = min(DESCRIPTOR_MIN, limit // 2)
    taken = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, random.SystemRandom().randrange(lowest, limit - lowest // 2))
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def open_channel(descriptor, secret):
    """Returns the function that sends a frame: its code, its number and its content, in one line of ASCII.

    All that it needs is bound here, since tests replace functions of modules. The secret stays in the state of the
    keyed hash alone.
    """
    keyed = hmac.new(secret, digestmod="sha256")
    encode = json.JSONEncoder(separators=(",", ":")).encode
    write, getpid, set_mask = os.write, os.getpid, signal.pthread_sigmask
    block, restore, every = signal.SIG_BLOCK, signal.SIG_SETMASK, signal.valid_signals()
    owner, number = os.getpid(), 0

    def send(**frame):
        nonlocal number
        if getpid() != owner:
            # A fork of this process has nothing to report.
            return
        content = b"%d %s" % (number, encode(frame).encode("ascii"))
        number += 1
        code = keyed.copy()
        code.update(content)
        line = b"%s %s\n" % (code.hexdigest().encode("ascii"), content)
        # A handler that raises in the middle of a frame would cut it.
        before = set_mask(block, every)
        try:
            while line:
                line = line[write(descriptor, line):]
        finally:
            set_mask(restore, before)

    return send


def installed_directories():
    """The directories of installed packages, those of the virtual environment first."""
    home = os.path.dirname(os.path.abspath(sys.executable))
    for prefix in (os.path.dirname(home), home):
        try:
            with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8") as file:
                pairs = [line.partition("=") for line in file]
        except OSError:
            continue
        settings = {key.strip().lower(): value.strip().lower() for key, _, value in pairs}
        bases = [sys.base_prefix, sys.base_exec_prefix]
        found = []
        if settings.get("include-system-site-packages") == "true":
            found = site.getsitepackages(bases)
        sys.prefix = sys.exec_prefix = prefix
        site.PREFIXES = [prefix, *bases] if found else [prefix]
        found = site.getsitepackages([prefix]) + found
        break
    else:
        found = site.getsitepackages()
    return [path for path in dict.fromkeys(found) if os.path.isdir(path)]


class SearchPath:
    """Where modules come from: the environment alone at first, later the sandbox too."""

    def __init__(self):
        site.setquit()
        site.setcopyright()
        site.sethelper()
        self.installed = installed_directories()
        self.first = sys.path[0]
        sys.path += [path for path in self.installed if path not in sys.path]
        self.environment = list(sys.path)
        self.is_open = False
        try:
            import sitecustomize  # noqa: F401
        except ImportError:
            pass

    def open(self):
        """Puts the sandbox on the path, as `python3 -m pytest` does."""
        if self.is_open:
            return
        self.is_open = True
        given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        extra = dict.fromkeys(os.path.abspath(entry) for entry in [os.curdir, *given])
        at = sys.path.index(self.first)
        sys.path[at:at] = [entry for entry in extra if entry not in sys.path]
        for path in self.installed:
            # The .pth files; those of editable packages name the sandbox.
            site.addsitedir(path)

    def distributions(self, **_):
        """The packages of the environment."""
        return importlib.metadata.Distribution.discover(path=self.installed)

    def bound_distributions(self):
        """Has pytest find packages in the environment alone: one in the sandbox could name a plugin."""
        self.all_distributions = importlib.metadata.distributions
        importlib.metadata.distributions = self.distributions

    def unbound_distributions(self):
        """Has tests find every package."""
        importlib.metadata.distributions = self.all_distributions


def with_tests(files):
    """The files that define tests, whatever is collected of them."""
    found = []
    for name in files:
        try:
            with open(name, "rb") as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        if any(isinstance(node, functions) and node.name.startswith("test") for node in ast.walk(tree)):
            found.append(os.path.normpath(name))
    return found


def arguments(order, options):
    """The command line of pytest, or None if nothing of what is asked for is there."""
    by_id = order["by_id"]
    is_there = [name for name in order["files"] if os.path.isdir(name) or (
        os.path.isfile(name) and (by_id or name.endswith(".py")))]
    if by_id and not is_there:
        return None
    return options + [os.path.join(os.curdir, name) if name.startswith("-") else name for name in is_there]


def main(parts):
    """Runs pytest by its order. Returns its exit code."""
    # The order goes out of reach with its secret.
    recorder = types.ModuleType("runner_recorder")
    source, order = parts.pop(0), json.loads(parts.pop(0))
    send = open_channel(take_stdout(), bytes.fromhex(order.pop("secret")))
    for name in [name for name in vars(sys.modules["__main__"]) if not name.startswith("__")]:
        delattr(sys.modules["__main__"], name)
    path = SearchPath()
    if not order["isolated"]:
        path.open()
    try:
        import pytest
    except ImportError as error:
        send(fault="pytest cannot be imported from the environment: %s" % error)
        return 1
    exec(compile(source, recorder.__name__, "exec"), vars(recorder))
    send(pytest=pytest.__version__)
    if not order["by_id"]:
        send(named=with_tests(order["files"]))
    line = arguments(order, sys.argv[1:])
    if line is None:
        send(fault="no file of the tests exists")
        return 1
    sys.argv = [os.path.join(os.path.dirname(pytest.__file__), "__main__.py"), *line]
    plugin = recorder.Recorder(order, path, send)
    path.bound_distributions()
    try:
        code = int(pytest.main(line, plugins=[plugin]))
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if not plugin.has_begun:
        send(fault="pytest ended before its session began, code %d" % code)
    return code


ended = main(PARTS)  # noqa: F821
try:
    sys.stdout.flush()
    sys.stderr.flush()
finally:
    # Threads and exit handlers of tested code have nothing to add.
    os._exit(ended)
