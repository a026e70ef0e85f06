"""The Python side of a context: runs code in one module, and keeps its state.

Requests arrive on the standard input that the kernel was started with, a line of JSON each:
{"id": ..., "code": ..., "file": ...}. The answer follows what the code printed: a record mark on
stderr, then on stdout a record mark with the answer as JSON. Both marks hold the id of the request,
which is random, so no output is taken for one by accident.

Before the first request the kernel prints the line `ready` and waits for {"run_dir": ...}. It may have been
started before anybody asked for it, so it loads nothing of the workspace until then.
"""

import sys

# The directory of the workspace comes back with the first line.
sys.path = [path for path in sys.path if path]

import ast
import asyncio
import base64
import builtins
import inspect
import json
import linecache
import os
import signal
import traceback
import types

IMAGES = [
    ("_repr_png_", "image/png", "png"),
    ("_repr_jpeg_", "image/jpeg", "jpg"),
    ("_repr_svg_", "image/svg+xml", "svg"),
]
TEXTS = [("_repr_html_", "text/html"), ("_repr_json_", "application/json")]
TEXT_CHARS_MAX = 1 << 18
IMAGE_BYTES_MAX = 16 << 20
REQUEST_ERRORS = (ValueError, KeyError, TypeError)


class Kernel:
    def __init__(self):
        # The code gets an empty standard input. Child processes inherit none of these two.
        self.requests = os.fdopen(os.dup(0), "rb")
        self.answers = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self.module = types.ModuleType("__main__")
        self.module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.module
        sys.argv = [""]
        self.loop = None
        self.images = 0

    def await_run(self):
        # Outside of a call an interrupt means nothing.
        ignore_interrupts()
        write_all(1, b"ready\n")
        run_dir = json.loads(self.requests.readline() or sys.exit())["run_dir"]
        if run_dir is not None:
            os.environ.setdefault("RUN_DIR", run_dir)
        if "" not in sys.path:
            sys.path.insert(0, "")

    def serve(self):
        self.await_run()
        self.answer("", {"ready": True})
        for line in self.requests:
            try:
                request = json.loads(line)
                name, code, file = request["id"], request["code"], request["file"]
            except REQUEST_ERRORS:
                return
            answer = self.execute(code, file)
            self.flush()
            self.answer(name, answer)

    def answer(self, name, answer):
        text = json.dumps(answer, ensure_ascii=True)
        write_all(2, ("\x1e%s\x1e" % name).encode())
        write_all(self.answers, ("\x1e%s%s\x1e" % (name, text)).encode())

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def execute(self, code, file):
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                value = self.run(code, file)
                results = [] if value is None else self.results(value)
            finally:
                ignore_interrupts()
            return {"results": results}
        except SystemExit:
            self.flush()
            raise
        except BaseException as error:
            return {"results": [], "error": self.error(error, file)}

    def run(self, code, file):
        linecache.cache[file] = (len(code), None, code.splitlines(True), file)
        tree = ast.parse(code, file, "exec")
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        names = self.module.__dict__
        if tree.body:
            self.evaluate(compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if last is None:
            return None
        return self.evaluate(compile(last, file, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)

    def evaluate(self, code, names):
        if code.co_flags & inspect.CO_COROUTINE:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
            return self.loop.run_until_complete(types.FunctionType(code, names)())
        return eval(code, names)

    def results(self, value):
        results = [{"mime_type": "text/plain", "text": repr(value)[:TEXT_CHARS_MAX]}]
        for method, mime_type in TEXTS:
            text = call(value, method)
            if text is not None:
                text = text if isinstance(text, str) else json.dumps(text, default=repr)
                results.append({"mime_type": mime_type, "text": text[:TEXT_CHARS_MAX]})
        for method, mime_type, suffix in IMAGES:
            image = call(value, method)
            if image is None and suffix == "png":
                image = figure_png(value)
            if isinstance(image, str):
                image = image.encode() if suffix == "svg" else base64.b64decode(image)
            if isinstance(image, bytes) and len(image) <= IMAGE_BYTES_MAX:
                results.append(self.keep(image, mime_type, suffix))
        return results

    def keep(self, image, mime_type, suffix):
        directory = os.path.join(os.environ.get("OUTPUT_DIR", "out"), "results")
        os.makedirs(directory, exist_ok=True)
        while True:
            self.images += 1
            name = "image_%d_%d.%s" % (os.getpid(), self.images, suffix)
            try:
                file = open(os.path.join(directory, name), "xb")
                break
            except FileExistsError:
                continue
        with file:
            file.write(image)
        return {"mime_type": mime_type, "file": name, "size_bytes": len(image)}

    def error(self, error, file):
        # Our own frames come first; the code's begin with its file.
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != file:
            frames = frames.tb_next
        try:
            lines = traceback.format_exception(type(error), error, frames)
            value = str(error)
        except Exception as another:
            lines, value = ["%s\n" % type(error).__name__], repr(another)
        text = "".join(lines)[-TEXT_CHARS_MAX:]
        return {"name": type(error).__name__, "value": value[:TEXT_CHARS_MAX], "traceback": text}


def ignore_interrupts():
    """An interrupt that has just arrived is raised by the call that would ignore it."""
    while True:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            return
        except KeyboardInterrupt:
            pass


def call(value, method):
    """The result of value.method(), or None: a broken method does not fail the code."""
    if isinstance(value, type):
        return None
    try:
        found = getattr(value, method, None)
        return found() if callable(found) else None
    except Exception:
        return None


def figure_png(value):
    """A figure of matplotlib, which leaves its picture to the notebook."""
    if not type(value).__module__.startswith("matplotlib.") or not hasattr(value, "savefig"):
        return None
    import io
    try:
        picture = io.BytesIO()
        value.savefig(picture, format="png")
        return picture.getvalue()
    except Exception:
        return None


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data):]


Kernel().serve()
