"""Runs a program to its end and then never ends itself."""

import subprocess
import time


def probe(*argv):
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(60)
