"""Removes, renames, replaces and empties the working directory, and takes all its permissions."""

import os
import shutil


def answer(call, *args):
    try:
        call(*args)
    except OSError as error:
        return os.strerror(error.errno)
    return "done"


def probe(place):
    tried = {
        "rmdir": answer(os.rmdir, place),
        "rename": answer(os.rename, place, "/tmp/moved"),
        "link_over": answer(os.rename, "/tmp/home", place),
        "rename_root": answer(os.rename, "/tmp", "/tmp2"),
    }
    for name in os.listdir(place):
        path = os.path.join(place, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    tried["left"] = os.listdir(place)
    tried["closed"] = answer(os.chmod, place, 0)
    os.chdir("/")
    return tried
