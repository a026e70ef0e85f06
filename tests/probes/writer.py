"""Writes numbers to files in order, by rename, by write and through a map, and makes and removes others,
so that a copy of two moments shows."""
import mmap, os, sys
os.chdir("/workspace/work")
for number in range(300):
    with open("m%d" % number, "w") as file: file.write("x" * 10000)
with open("shared", "wb") as file: file.write(b"0" * 4096)
shared = os.open("shared", os.O_RDWR)
mapped = mmap.mmap(shared, 4096)
def write(name, number):
    with open("new", "w") as file: file.write("%020d" % number)
    os.rename("new", name)
number = 0
while True:
    for name in ("a", "b", "z"): write(name, number)
    os.pwrite(shared, b"%020d" % number, 0)
    mapped[100:120] = b"%020d" % number
    for name in ("d%d" % (number % 7), "e%d" % (number % 5)):
        try: os.mkdir(name)
        except FileExistsError: os.rename(name, "gone"); os.rmdir("gone")
    if number == 1: print("up", flush=True)
    number += 1
