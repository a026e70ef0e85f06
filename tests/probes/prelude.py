import base64 as _base64
import errno as _errno
import gzip as _gzip
import json as _json
import os as _os

# The embedded program, if any.
_NATIVE = "{native}"
# The run's stdout: a harness may have moved it away from descriptor 1.
STDOUT_CANDIDATES = (3, 1)


def _unpack_native():
    if _NATIVE:
        with open("/tmp/probe", "wb") as file:
            file.write(_gzip.decompress(_base64.b64decode(_NATIVE)))
            _os.fchmod(file.fileno(), 0o755)


def answer(attempt, *args):
    """Returns "ok" or the name of the error with which the attempt fails."""
    try:
        attempt(*args)
        return "ok"
    except OSError as error:
        return _errno.errorcode[error.errno]


def is_open(descriptor):
    try:
        _os.fstat(descriptor)
    except OSError:
        return False
    return True


def solution():
    _unpack_native()
    observed = _json.dumps(probe(*_json.loads({args})))
    # In hexadecimal, so that no harness escapes anything.
    return "{before}" + observed.encode().hex() + "{after}"


