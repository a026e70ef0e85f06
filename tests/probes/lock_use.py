"""Uses file locks as programs do: many transactions on one database, and mutual exclusion of processes."""

import errno
import fcntl
import os
import sqlite3

TRANSACTIONS = 1000
TURNS = 8000


def told(attempt, *args):
    try:
        attempt(*args)
        return "ok"
    except Exception as error:
        return repr(error)


def database():
    db = sqlite3.connect("/tmp/test.db", isolation_level=None)
    db.execute("CREATE TABLE t (a)")
    for number in range(TRANSACTIONS):
        db.execute("INSERT INTO t VALUES (?)", (number,))
    assert db.execute("SELECT count(*) FROM t").fetchone() == (TRANSACTIONS,)


def other_connection():
    first, second = (sqlite3.connect("/tmp/test.db", isolation_level=None, timeout=0) for _ in range(2))
    first.execute("BEGIN IMMEDIATE")
    try:
        second.execute("BEGIN IMMEDIATE")
        raise AssertionError("two writers")
    except sqlite3.OperationalError as error:
        assert "locked" in str(error), error
    first.execute("COMMIT")
    second.execute("BEGIN IMMEDIATE")
    second.execute("COMMIT")


def excluded_in_child(lock, path, flags):
    child = os.fork()
    if child == 0:
        try:
            lock(os.open(path, os.O_RDWR), flags)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exclusion(lock):
    path = "/tmp/locked"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    lock(file, fcntl.LOCK_EX)
    refused = excluded_in_child(lock, path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert refused in (errno.EAGAIN, errno.EACCES), refused
    lock(file, fcntl.LOCK_UN)
    assert excluded_in_child(lock, path, fcntl.LOCK_EX | fcntl.LOCK_NB) == 0
    os.close(file)


def turns(lock):
    file = os.open("/tmp/turns", os.O_RDWR | os.O_CREAT)
    for _ in range(TURNS // 2):
        lock(file, fcntl.LOCK_EX)
        lock(file, fcntl.LOCK_UN)
    os.close(file)


def probe():
    return {
        "database": told(database),
        "other-connection": told(other_connection),
        "record-exclusion": told(exclusion, fcntl.lockf),
        "flock-exclusion": told(exclusion, fcntl.flock),
        "record-turns": told(turns, fcntl.lockf),
        "flock-turns": told(turns, fcntl.flock),
    }
