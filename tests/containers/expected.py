"""What holds in which container: the flags, and what the test has to see, row by row."""

UNCONFINED = ["--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL"]
USER = ["--user", "10001:10001", "--cap-drop", "ALL"]

# A column each: its heading in the document, and the flags of podman.
CONTAINERS = {
    "privileged": ["--privileged"],
    "capabilities": ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", *UNCONFINED],
    "user": [*USER, *UNCONFINED],
    "defaults": [],
}

# The same in the words of Docker's command line, for the document.
DOCKER_UNCONFINED = ("--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
                     "--security-opt systempaths=unconfined")

# One whose root is nobody on the host, as of engines without root: there every box is made in a
# user namespace.
REMAPPED = ["--privileged", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]

YES, WEAK, NO = "enforced", "degraded", "missing"

# The controls in doctor's words and order, in the order of the columns.
CONTROLS = {
    "pid namespace": [YES, YES, YES, NO],
    "mount namespace": [YES, YES, YES, NO],
    "ipc namespace": [YES, YES, YES, NO],
    "uts namespace": [YES, YES, YES, NO],
    "net namespace": [YES, YES, YES, NO],
    "cgroup namespace": [YES, YES, YES, NO],
    "user namespace": [YES, YES, YES, WEAK],
    "disk quota": [YES, YES, YES, NO],
    "private root": [YES, YES, YES, NO],
    "private /proc": [YES, YES, YES, NO],
    "uid": [YES, YES, WEAK, YES],
    "capabilities": [YES, YES, YES, YES],
    "no_new_privs": [YES, YES, YES, YES],
    "seccomp": [YES, YES, YES, YES],
    "landlock": [YES, YES, YES, NO],
    "process limits": [YES, YES, YES, YES],
    "memory": [YES, NO, NO, NO],
    "processes": [YES, WEAK, WEAK, WEAK],
    "cpu": [YES, NO, NO, NO],
    "cpu time": [YES, WEAK, WEAK, WEAK],
    "cgroup kill": [YES, WEAK, WEAK, WEAK],
    "whole box": [YES, YES, YES, NO],
}
# What the host's kernel is set to, whatever the container.
OF_THE_HOST = ["core dumps"]

# What came of it: of starting the service, and of the programs posted to it.
RUNS = {
    "the service": ["starts", "starts", "starts", "refused"],
    "a good run": ["exited", "exited", "exited", "-"],
    "a fork bomb": ["process_limit", "refused", "refused", "-"],
    "the network": ["unreachable", "unreachable", "unreachable", "-"],
    "too much memory": ["memory_limit", "-", "-", "-"],
    "its neighbour's processes": ["apart", "apart", "apart", "-"],
    "what is not its own": ["read-only", "read-only", "read-only", "-"],
}

# So that no posted program of this test outlives it: more than a box may have, for some seconds.
FORK_BOMB = """
i=0
while [ $i -lt 400 ]; do sleep 5 & i=$((i + 1)); done
echo no limit
"""
# Doubles what it holds; 64 times this is beyond any limit of memory.
MEMORY_HOG = "x=0123456789abcdef; while :; do x=$x$x; done"
# The service itself listens on a port of the container, which a box must not reach.
NETWORK = "nc -w 2 127.0.0.1 {port} </dev/null && echo reached; nc -w 2 192.0.2.1 80 </dev/null && echo reached; true"
# Two at once have more processes than one may have, and neither is refused any.
MANY = """
i=0
while [ $i -lt 180 ]; do sleep 2 & i=$((i + 1)); done
sleep 1.5
echo all there
"""
GOOD = """
id -u; id -g; getent hosts localhost; pwd
ps -o pid= | wc -l
sed -n 's/^\\(CapEff\\|CapBnd\\|NoNewPrivs\\|Seccomp\\|Groups\\):[ \\t]*//p' /proc/self/status
"""
# Engines give the service's group once more as a further one, which without privileges stays.
GROUPS = {"user": "10001 "}
GOOD_LINES = ["10001", "10001", "::1             localhost ip6-localhost ip6-loopback", "/workspace", "PROCESSES",
              "GROUPS", "0000000000000000", "0000000000000000", "1", "2"]
# Whoever is the service's uid owns these, and may not write to them all the same.
WRITES = """
for place in / /dev /etc /proc /usr /usr/bin /.empty /.overlay /.overlay/work /var /langs; do
    (: >$place/written) 2>/dev/null && echo written: $place
    mkdir $place/made 2>/dev/null && echo made: $place
done
chmod 777 / /dev /etc/hosts /.overlay 2>/dev/null && echo changed
for place in /workspace /tmp /run /dev/shm /var/tmp; do
    (: >$place/written) || echo refused: $place
done
echo 1 2>/dev/null >/proc/sys/net/ipv4/ip_forward && echo written: sysctl
umount /proc 2>/dev/null && echo unmounted
mount -o remount,rw / 2>/dev/null && echo remounted
kill -9 1 2>/dev/null
true
"""
