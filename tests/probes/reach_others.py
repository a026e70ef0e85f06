"""Tries to reach every process and file of another workspace; prints those that it reached."""
import os, signal
mine = set(int(name) for name in os.listdir("/proc") if name.isdigit())
reached = []
for pid in list(range(2, 70000)) + [-1]:
    if pid in mine: continue
    try:
        os.kill(pid, signal.SIGKILL if pid > 0 else signal.SIGUSR2); reached.append(pid)
    except OSError: pass
for place in ("/proc/1/root", "/proc/self/root/workspace/..", "/run", "/tmp/..", "/dev/shm"):
    for top, directories, files in os.walk(place):
        directories[:] = directories[:50]
        if "others" in files: reached.append(top)
        if top.count("/") > 5: directories.clear()
print("reached", *reached)
