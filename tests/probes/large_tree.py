"""Makes as many entries as it may, up to as many as its argument says: names of one file, a directory of
long names, and a deep tree. Prints how many it made."""
import os, sys
most, made = int(sys.argv[1]), 0
os.chdir("/workspace/work")
with open("sparse", "wb") as sparse: sparse.truncate(1 << 40)
def count(call):
    global made
    try: call()
    except OSError: return False
    made += 1
    return made < most
open("farm0", "w").close()
number = 1
while number < most // 4 and count(lambda: os.link("farm0", "farm%d" % number)): number += 1
os.mkdir("huge")
number = 0
while number < most // 4 and count(lambda: os.symlink("x", "huge/" + ("%d" % number).rjust(250, "n"))): number += 1
deep = 0
while deep < 300 and count(lambda: os.mkdir("d" * 250)):
    os.chdir("d" * 250)
    deep += 1
os.chdir("/workspace/work")
number = 0
while count(lambda: os.mkdir("e%d" % number)): number += 1
print(made)
