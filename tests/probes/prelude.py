import base64 as _base64
import gzip as _gzip
import json as _json

# The embedded program, if any.
_NATIVE = "{native}"
# The run's stdout: a harness may have moved it away from descriptor 1.
STDOUT_CANDIDATES = (3, 1)


def _unpack_native():
    if _NATIVE:
        with open("/tmp/probe", "wb") as file:
            file.write(_gzip.decompress(_base64.b64decode(_NATIVE)))
            import os
            os.fchmod(file.fileno(), 0o755)


def solution():
    _unpack_native()
    observed = _json.dumps(probe(*_json.loads({args})))
    # In hexadecimal, so that no harness escapes anything.
    return "{before}" + observed.encode().hex() + "{after}"


