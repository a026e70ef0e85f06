"""Writes only the given bytes, in hexadecimal with repeat counts, to the run's own stdout."""

import os
import stat


def probe(*pieces):
    out = next(fd for fd in STDOUT_CANDIDATES if stat.S_ISFIFO(os.fstat(fd).st_mode))
    said = b"".join(bytes.fromhex(digits) * times for digits, times in pieces)
    while said:
        said = said[os.write(out, said) :]
    # Not through the harness, which would add its own output.
    os._exit(0)
