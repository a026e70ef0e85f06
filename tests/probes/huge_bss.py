"""A program whose file asks for more zeroed memory than the address space has."""

import os
import struct
import subprocess

LOAD, WRITABLE = 1, 2
# In a 64-bit ELF file.
PROGRAM_HEADERS_AT, SIZE_AT, COUNT_AT = 32, 54, 56


def ask_for(program, size):
    headers, = struct.unpack_from("<Q", program, PROGRAM_HEADERS_AT)
    each, count = struct.unpack_from("<HH", program, SIZE_AT)
    changed = 0
    for at in range(headers, headers + each * count, each):
        kind, flags = struct.unpack_from("<II", program, at)
        if kind == LOAD and flags & WRITABLE:
            struct.pack_into("<Q", program, at + 40, size)
            changed += 1
    return changed


def probe():
    with open("/tmp/probe", "rb") as file:
        original = file.read()
    ended = {}
    for name, size in ("terabyte", 1 << 40), ("everything", 1 << 46), ("overflow", (1 << 64) - 4096):
        program = bytearray(original)
        path = f"/tmp/{name}"
        assert ask_for(program, size) == 1
        with open(path, "wb") as file:
            file.write(program)
            os.fchmod(file.fileno(), 0o755)
        try:
            ended[name] = subprocess.run([path, "bss"], capture_output=True, timeout=10).returncode
        except OSError as error:
            ended[name] = error.strerror
    return ended
