"""Calls the posted `solution` once per entry of check/asserts.json; reports one JSON array.

Descriptor 3 is the run's stdout. Descriptor 1 is the file named by the first
argument, so nothing the solution prints, not even a child process of it, can
come between the items.
"""

import atexit
import json
import os
import sys
import time

ASSERTS = "check/asserts.json"
SOLUTION = "check/solution.py"
RESULTS_FD = 3
# Ahead of a run: ends when the files are there and the run begins.
BEGIN_FD = 4
# Characters of printed text that are repeated on stderr.
REPEATED_MAX = 4096


class Report:
    """The items so far, each encoded as it came: a later one cannot spoil it."""

    def __init__(self, printed_path):
        self.items = []
        # How many of them stand for a call: all but what was printed.
        self.answers = 0
        # The only answer so far, if that is an error, and what was printed before it.
        self.lone_error = None
        self.printed = open(printed_path, "rb")
        self.failures = 0

    def add(self, kind, value, **more):
        # Encoded before what was printed is taken, so that a value JSON cannot
        # hold leaves the order output, error.
        item = json.dumps({"type": kind, "value": value, **more}, allow_nan=False, ensure_ascii=False)
        printed = self.take_printed()
        # The platform shows what a call printed from the call's own item.
        answer = f'{item[:-1]}, "output": {json.dumps(printed, ensure_ascii=False)}}}' if printed else item
        self.items.append(answer)
        self.answers += 1
        self.lone_error = (answer, printed) if self.answers == 1 and kind == "error" else None

    def take_printed(self):
        """What was printed since the last time."""
        try:
            sys.stdout.flush()
        except (OSError, ValueError, AttributeError):
            pass  # The solution closed or replaced it; what reached the file counts.
        printed = self.printed.read().decode("utf-8", "replace")
        if printed:
            self.items.append(f'{{"type": "output", "value": {json.dumps(printed, ensure_ascii=False)}}}')
        return printed

    def add_failure(self, error):
        import traceback  # Costs more than the rest of the start; only failures need it.

        own_frames = error.__traceback__ and error.__traceback__.tb_next
        if self.failures == 0:
            # All of a deep recursion's frames are more than a run's output may be.
            traceback.print_exception(type(error), error, own_frames, limit=-20)
        self.failures += 1
        self.add("error", "".join(traceback.format_exception_only(type(error), error)).strip())

    def send(self):
        self.take_printed()
        items = self.items
        if self.lone_error:
            # The platform shows an error that is the only item, and stderr with it, as the
            # error of the whole check. Beside any other item it is the row of the first call.
            answer, printed = self.lone_error
            items = [answer]
            if printed:
                repeat(printed)
        # A lone surrogate has no UTF-8 form; it must not cost the other items.
        text = ("[" + ",".join(items) + "]\n").encode("utf-8", "replace")
        with open(RESULTS_FD, "wb") as results:
            results.write(text)


def repeat(printed):
    text = f"printed before the error:\n{printed[:REPEATED_MAX]}\n"
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        pass  # The solution closed it.


def read_calls():
    """The argument lists, or a ValueError that says what is wrong with the file."""
    try:
        with open(ASSERTS, "rb") as file:
            asserts = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{ASSERTS}: {error}") from None
    calls = asserts.get("arguments") if isinstance(asserts, dict) else None
    if not isinstance(calls, list) or not all(isinstance(call, list) for call in calls):
        raise ValueError(f'{ASSERTS}: want {{"arguments": [[...], ...]}}')
    return calls


def load_solution():
    module = type(sys)("solution")
    module.__file__ = SOLUTION
    # Dataclasses and pickle look their module up by its name.
    sys.modules["solution"] = module
    with open(SOLUTION, "rb") as file:
        exec(compile(file.read(), SOLUTION, "exec"), module.__dict__)
    if not callable(getattr(module, "solution", None)):
        raise NameError(f"{SOLUTION} defines no function `solution`")
    return module.solution


def call(report, solution, arguments):
    try:
        start = time.perf_counter()
        value = solution(*arguments)
        seconds = time.perf_counter() - start
        report.add("result", value, time=round(seconds, 6))
    except SystemExit:
        raise
    except BaseException as error:
        report.add_failure(error)


def run(report):
    try:
        calls = read_calls()
    except ValueError as error:
        report.add("error", str(error))
        return
    try:
        solution = load_solution()
    except SystemExit:
        raise
    except BaseException as error:
        report.add_failure(error)
        return
    for arguments in calls:
        call(report, solution, arguments)


def await_run():
    """Started ahead of the run: reports that, and waits for it."""
    for arguments in (sys.argv, sys.orig_argv):
        arguments.pop()
    # What a run does is done once, so that nothing of it is met for the first time.
    json.loads('{"arguments": [[1, "a", null, 1.5, true]]}')
    json.dumps({"type": "result", "value": [1, "a", None, 1.5, True]}, allow_nan=False, ensure_ascii=False)
    exec(compile("def solution(a, b):\n    return a + b\n", SOLUTION, "exec"), {})
    os.write(RESULTS_FD, b"ready\n")
    os.read(BEGIN_FD, 1)
    os.close(BEGIN_FD)


def end_at_once():
    """Ends the process when all has gone well.

    The interpreter would be taken apart object by object, which takes longer than a short check. So no
    `__del__` is called, and what is in the buffers of files that the solution left open is lost.
    """
    if not is_over:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        return  # The interpreter says so, and ends with another code.
    os._exit(0)


def main():
    os.set_inheritable(RESULTS_FD, False)
    if sys.argv[2:] == ["prestart"]:
        await_run()
    sys.set_int_max_str_digits(0)
    report = Report(sys.argv[1])
    try:
        run(report)
    except SystemExit as end:
        # Without it, the calls that never came would look like none were asked.
        report.add("error", f"the solution ended the program: SystemExit({end.code!r})")
        raise
    finally:
        report.send()


# The first registered is the last called: after threads and callbacks of the solution.
atexit.register(end_at_once)
is_over = False
main()
is_over = True
