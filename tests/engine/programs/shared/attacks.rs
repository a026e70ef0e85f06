//! What a program of a shared sandbox cannot do to its init.

use serde_json::json;

use super::{shared, start};

/// Tries each way to the init, and prints those that are not refused.
const PROBE: &str = r#"
import ctypes, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.process_vm_readv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
done = []
def attempt(name, call):
    try:
        result = call()
    except OSError:
        return
    if result != -1:
        done.append(name)
tried = 0
for request in (16, 0x4206):  # PTRACE_ATTACH, PTRACE_SEIZE
    tried += 1
    attempt(f'ptrace {request}', lambda: libc.ptrace(request, 1, None, None))
buffer = ctypes.create_string_buffer(64)
class iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('len', ctypes.c_size_t)]
local = iovec(ctypes.cast(buffer, ctypes.c_void_p), 64)
remote = iovec(0x10000000, 64)
attempt('process_vm_readv', lambda: libc.process_vm_readv(1, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))
for name in ('mem', 'maps', 'environ', 'auxv', 'exe', 'cwd', 'root', 'fd', 'fdinfo', 'map_files', 'stack', 'syscall', 'io', 'pagemap', 'ns/pid'):
    tried += 1
    path = f'/proc/1/{name}'
    def look():
        if name in ('exe', 'cwd', 'root', 'ns/pid'):
            return len(os.readlink(path))
        if name in ('fd', 'fdinfo', 'map_files'):
            return len(os.listdir(path))
        with open(path, 'rb') as file:
            return len(file.read(16)) or -1
    attempt(name, look)
for fd in range(3, 80):
    tried += 1
    attempt(f'fd {fd}', lambda: os.open(f'/proc/1/fd/{fd}', os.O_RDWR))
def steal():
    pidfd = os.pidfd_open(1)
    results = [libc.syscall(438, pidfd, fd, 0) for fd in range(80)]
    os.close(pidfd)
    return max(results)
attempt('pidfd_getfd', steal)
for name in ('oom_score_adj', 'comm', 'coredump_filter', 'clear_refs', 'timerslack_ns'):
    tried += 1
    def write():
        with open(f'/proc/1/{name}', 'w') as file:
            file.write('1')
    attempt(f'write {name}', write)
attempt('prlimit', lambda: __import__('resource').prlimit(1, __import__('resource').RLIMIT_NOFILE, (1, 1)))
# Our own descriptors: nothing but the streams and what python opened.
for fd in os.listdir('/proc/self/fd'):
    if int(fd) > 2:
        try:
            target = os.readlink(f'/proc/self/fd/{fd}')
        except OSError:
            continue
        if not target.startswith('/proc/'):
            done.append(f'inherited {fd} {target}')
# Every signal; a process that ignores none would be dead.
for number in range(1, 65):
    tried += 1
    try:
        os.kill(1, number)
    except OSError:
        pass
try:
    os.kill(-1, signal.SIGCONT)
except OSError:
    pass
time.sleep(0.2)
print(tried, done)
"#;

#[test]
fn the_init_cannot_be_reached_from_inside() {
    let Some((scene, workspace)) = shared() else { return };
    let neighbour = start(&scene, &workspace, "sleep 600", &json!({}));
    let probe = scene.run(&workspace, &json!({"cmd": "python3", "args": ["-c", PROBE]}));
    assert_eq!(probe["stdout"], "163 []\n", "{probe}");
    assert_eq!(scene.sh(&workspace, "echo the init lives"), "the init lives\n");
    assert_eq!(scene.get(&neighbour).json()["status"], "running");
}

#[test]
fn stopped_and_killed_processes_do_not_reach_the_init_or_the_next_program() {
    let Some((scene, workspace)) = shared() else { return };
    let script = "kill -STOP 1; kill -KILL 1; kill -TERM 1; kill -CHLD 1; sleep 0.1; echo alive";
    assert_eq!(scene.sh(&workspace, script), "alive\n");
    // All that a program can reach; the kernel spares the caller.
    let result = scene.run(&workspace, &json!({"cmd": "sh", "args": ["-c", "kill -KILL -1"]}));
    assert_eq!(result["exit_code"], 1, "{result}");
    assert_eq!(scene.sh(&workspace, "echo alive"), "alive\n");
}

#[test]
fn a_program_gets_nothing_back_that_the_sandbox_gave_up() {
    let Some((scene, workspace)) = shared() else { return };
    let script = "
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status
echo x 2>/dev/null >/etc/x || echo read-only
unshare -U true 2>/dev/null || echo no-namespace
mount -t tmpfs none /mnt 2>/dev/null || echo no-mount
ls /sys/fs/cgroup 2>/dev/null | wc -l
cat /proc/self/cgroup | cut -d: -f3 | sort -u
";
    let seen = scene.sh(&workspace, script);
    let zero = "0000000000000000";
    let wanted = format!(
        "CapInh:\t{zero}\nCapPrm:\t{zero}\nCapEff:\t{zero}\nCapBnd:\t{zero}\nCapAmb:\t{zero}\n\
         NoNewPrivs:\t1\nSeccomp:\t2\nread-only\nno-namespace\nno-mount\n0\n"
    );
    let (told, groups) = seen.split_at(wanted.len().min(seen.len()));
    assert_eq!(told, wanted);
    for group in groups.lines() {
        assert!(group == "/" || group.starts_with("/all/p"), "{groups}");
    }
}
