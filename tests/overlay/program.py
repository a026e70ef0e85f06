# Applies random operations, each to one tree: the lines of stdin are JSON lists, first the tree's name.
# What an operation does does not depend on the order in which a directory is listed.
import json, os, shutil, stat, sys


def raw(name):
    return name.encode("latin-1")


def opened(path, flags):
    # A fifo that nobody reads is an error.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | flags, 0o666)


def write(path, text, flags=os.O_TRUNC):
    file = opened(path, flags)
    os.write(file, text)
    os.close(file)


def beside(path, text):
    write(path + b".tmp", text)
    os.utime(path + b".tmp", (0, 0))
    os.rename(path + b".tmp", path)


def hole(path, length):
    file = opened(path, 0)
    os.ftruncate(file, length)
    os.close(file)


def remove_tree(path):
    # rmtree would wait for the writer of a fifo.
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path, ignore_errors=True)


def toggle(path):
    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) ^ 0o110)


OPERATIONS = {
    "write": lambda path, text: write(path, raw(text)),
    "append": lambda path, text: write(path, raw(text), os.O_APPEND),
    "replace": lambda path, text: beside(path, raw(text)),
    "hole": lambda path, length: hole(path, length),
    "remove": lambda path: os.unlink(path),
    "directory": lambda path: os.mkdir(path),
    "directories": lambda path: os.makedirs(path),
    "remove_empty": lambda path: os.rmdir(path),
    "remove_tree": lambda path: remove_tree(path),
    "rename": lambda path, other: os.rename(path, raw(other)),
    "link": lambda path, other: os.link(path, raw(other), follow_symlinks=False),
    "symlink": lambda path, text: os.symlink(raw(text), path),
    "toggle": lambda path: toggle(path),
    "fifo": lambda path: os.mkfifo(path),
    "touch": lambda path: None,
}

os.umask(0o022)
top = os.getcwdb()
for number, line in enumerate(sys.stdin):
    tree, name, path, *others = json.loads(line)
    os.chdir(os.path.join(top, raw(tree)))
    try:
        OPERATIONS[name](raw(path), *others)
        # The same times in every run.
        if stat.S_ISREG(os.stat(raw(path)).st_mode):
            os.utime(raw(path), (number, number))
    except OSError:
        pass
