"""Replaces every writable path by links, to mislead a later reader, change or removal."""

import os
import shutil
import stat

KEPT = ("/tmp/probe",)


def replace(path, target):
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    os.symlink(target, path)


def probe(*targets):
    links = []
    for place in ("/workspace/check", "/workspace", "/tmp", "/var/tmp", "/dev/shm", "/run"):
        for name in sorted(os.listdir(place)):
            path = os.path.join(place, name)
            if path in KEPT or os.path.ismount(path):
                continue
            try:
                replace(path, targets[len(links) % len(targets)])
            except OSError:
                continue
            links.append(path)
        # More links than there were files, in directories without permissions.
        for target in targets:
            directory = os.path.join(place, f"closed{len(links)}")
            os.mkdir(directory)
            os.symlink(target, os.path.join(directory, "link"))
            links.append(os.path.join(directory, "link"))
            os.chmod(directory, 0)
    return {"links": links}
