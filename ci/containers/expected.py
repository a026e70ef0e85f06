"""The kinds of containers with their flags, and what the test expects in each, row by row."""

UNCONFINED = ["--security-opt", "seccomp=unconfined", "--security-opt", "unmask=ALL"]
USER = ["--user", "10001:10001", "--cap-drop", "ALL"]

# One column each: its heading in the document, and the flags for podman.
CONTAINERS = {
    "privileged": ["--privileged"],
    "capabilities": ["--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", *UNCONFINED],
    "user": [*USER, *UNCONFINED],
    "defaults": [],
}

# The same flags for Docker, for the document.
DOCKER_UNCONFINED = ("--security-opt seccomp=unconfined --security-opt apparmor=unconfined "
                     "--security-opt systempaths=unconfined")

# Root in it is an unprivileged user on the host, as with rootless engines. Every sandbox in it uses
# a user namespace.
REMAPPED = ["--privileged", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536"]

YES, WEAK, NO = "enforced", "degraded", "missing"

# The controls as doctor names and orders them; one value per column.
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
# Controls that depend on the host's kernel settings, not on the container.
OF_THE_HOST = ["core dumps"]

# The result of starting the service and of each program posted to it.
RUNS = {
    "the service": ["starts", "starts", "starts", "refused"],
    "a good run": ["exited", "exited", "exited", "-"],
    "a fork bomb": ["process_limit", "refused", "refused", "-"],
    "the network": ["unreachable", "unreachable", "unreachable", "-"],
    "too much memory": ["memory_limit", "-", "-", "-"],
    "processes of a second run": ["apart", "apart", "apart", "-"],
    "writing outside its folders": ["read-only", "read-only", "read-only", "-"],
}

# Starts more processes than a sandbox may have. They end by themselves after some seconds, so that
# none outlives the test.
FORK_BOMB = """
i=0
while [ $i -lt 400 ]; do sleep 5 & i=$((i + 1)); done
echo no limit
"""
# Doubles its memory until it exceeds any limit.
MEMORY_HOG = "x=0123456789abcdef; while :; do x=$x$x; done"
# The service listens on a port of the container, which a sandbox must not reach.
NETWORK = "nc -w 2 127.0.0.1 {port} </dev/null && echo reached; nc -w 2 192.0.2.1 80 </dev/null && echo reached; true"
# Two of these at once have more processes than one sandbox may have; neither may be refused any.
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
# Engines also give the service's group as a supplementary group, which it cannot drop without
# privileges.
GROUPS = {"user": "10001 "}
GOOD_LINES = ["10001", "10001", "::1             localhost ip6-localhost ip6-loopback", "/workspace", "PROCESSES",
              "GROUPS", "0000000000000000", "0000000000000000", "1", "2"]
# The program has the uid that owns these folders; it still must not write to them.
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
