"""Says bytes, given in hexadecimal and each so many times, on the run's own stdout, and nothing else."""

import os
import stat


def probe(*pieces):
    out = next(fd for fd in STDOUT_CANDIDATES if stat.S_ISFIFO(os.fstat(fd).st_mode))
    said = b"".join(bytes.fromhex(digits) * times for digits, times in pieces)
    while said:
        said = said[os.write(out, said) :]
    # Not through the harness, which would put something of its own beside it.
    os._exit(0)
