//! One test for each bomb.

use crate::bomb::Bomb;

/// Forks up to its limit, and keeps trying.
const FORKS: &str = "exec python3 -Sc '
import os
while True:
    try: os.fork()
    except OSError: pass
'";
/// Computes in as many processes as it may have.
const LOOPS: &str = "exec python3 -Sc '
import os
for _ in range(250):
    if os.fork() == 0: break
while True: pass
'";
/// The same with each process in its own session: some kernels divide CPU time by session.
const SESSIONS: &str = "exec python3 -Sc '
import os
for _ in range(250):
    if os.fork() == 0:
        os.setsid()
        break
while True: pass
'";
/// Starts programs that end at once: only the shell is there whenever one looks.
const STORM: &str = "while :; do /bin/true & /bin/true & /bin/true & wait; done";
/// Starts short-lived threads, more than its limit.
const THREADS: &str = "exec python3 -Sc '
import _thread, time
def soon_over(): time.sleep(0.001)
while True:
    try: _thread.start_new_thread(soon_over, ())
    except RuntimeError: pass
'";
/// Allocates memory until the OOM killer ends the child, again and again.
const MEMORY: &str = "exec python3 -Sc '
import os
while True:
    child = os.fork()
    if child == 0:
        taken = []
        while True: taken.append(bytearray(1 << 22))
    os.waitpid(child, 0)
'";
/// Fills its disk with files and empties it again.
const DISK: &str = "exec python3 -Sc '
import os
piece = bytes(1 << 20)
while True:
    files = 0
    try:
        while True:
            with open(str(files), \"wb\", 0) as file:
                files += 1
                for _ in range(60): file.write(piece)
    except OSError: pass
    for name in range(files): os.unlink(str(name))
'";
/// Fills its disk until the run ends with a full disk to clean up.
const DISK_LEFT: &str = "exec python3 -Sc '
piece = bytes(1 << 20)
for name in range(1000):
    with open(str(name), \"wb\", 0) as file:
        for _ in range(60): file.write(piece)
'";
/// Creates as many files as it may and removes them again.
const INODES: &str = "exec python3 -Sc '
import os
while True:
    files = 0
    try:
        while True:
            os.close(os.open(str(files), os.O_CREAT | os.O_WRONLY))
            files += 1
    except OSError: pass
    for name in range(files): os.unlink(str(name))
'";
/// Opens as many descriptors as it may, in many processes.
const DESCRIPTORS: &str = "exec python3 -Sc '
import os
for _ in range(100):
    if os.fork() == 0: break
while True:
    held = []
    try:
        while True: held += os.pipe()
    except OSError: pass
    for fd in held: os.close(fd)
'";
/// Computes in a few processes, as the comparison for the floods.
const FEW_LOOPS: &str = "exec python3 -Sc '
import os
for _ in range(7):
    if os.fork() == 0: break
while True: pass
'";
/// Sends datagrams over `lo` that are never read, in as many processes.
const UDP: &str = "exec python3 -Sc '
import os, _socket
for _ in range(7):
    if os.fork() == 0: break
socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
socket.bind((\"127.0.0.1\", 0))
address, piece = socket.getsockname(), bytes(64)
while True:
    try: socket.sendto(piece, address)
    except OSError: pass
'";
/// Sends bytes over `lo` and reads them, in as many processes.
const TCP: &str = "exec python3 -Sc '
import os, _socket
for _ in range(7):
    if os.fork() == 0: break
listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
listener.bind((\"127.0.0.1\", 0))
listener.listen()
sender = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
sender.connect(listener.getsockname())
receiver = _socket.socket(fileno=listener._accept()[0])
piece = bytes(1024)
while True:
    sender.send(piece)
    receiver.recv(1024)
'";
const OUTPUT: &str = "exec yes";

#[test]
fn a_fork_bomb_leaves_its_neighbours_their_share() {
    Bomb::of("forks", FORKS, 250).assert_fair();
}

#[test]
fn two_fork_bombs_leave_their_neighbours_their_share() {
    Bomb::of("forks, 2 tenants", FORKS, 250).twice().assert_fair();
}

#[test]
fn two_hundred_and_fifty_loops_leave_their_neighbours_their_share() {
    Bomb::of("loops", LOOPS, 250).assert_fair();
}

#[test]
fn loops_of_two_tenants_leave_their_neighbours_their_share() {
    Bomb::of("loops, 2 tenants", LOOPS, 250).twice().assert_fair();
}

#[test]
fn processes_in_their_own_sessions_leave_their_neighbours_their_share() {
    Bomb::of("sessions", SESSIONS, 250).assert_fair();
}

#[test]
fn repeated_death_of_many_processes_does_not_delay_neighbours() {
    let mut bomb = Bomb::of("loops, killed", LOOPS, 100);
    bomb.timeout = "600ms";
    bomb.assert_fair();
}

#[test]
fn a_storm_of_short_programs_does_not_delay_neighbours() {
    Bomb::of("short programs", STORM, 1).assert_fair();
}

#[test]
fn a_thread_bomb_leaves_its_neighbours_their_share() {
    Bomb::of("threads", THREADS, 1).assert_fair();
}

#[test]
fn a_memory_bomb_does_not_delay_neighbours() {
    Bomb::of("memory", MEMORY, 2).assert_fair();
}

#[test]
fn two_memory_bombs_do_not_delay_neighbours() {
    Bomb::of("memory, 2 tenants", MEMORY, 2).twice().assert_fair();
}

#[test]
fn a_disk_bomb_does_not_delay_neighbours() {
    Bomb::of("disk", DISK, 1).assert_fair();
}

#[test]
fn the_cleanup_of_full_disks_does_not_delay_neighbours() {
    Bomb::of("disks left full", DISK_LEFT, 1).twice().assert_fair();
}

#[test]
fn an_inode_bomb_does_not_delay_neighbours() {
    Bomb::of("inodes", INODES, 1).assert_fair();
}

#[test]
fn a_descriptor_bomb_leaves_its_neighbours_their_share() {
    Bomb::of("descriptors", DESCRIPTORS, 100).assert_fair();
}

#[test]
fn an_output_bomb_does_not_delay_neighbours() {
    Bomb::of("output", OUTPUT, 1).assert_fair();
}

#[test]
fn unlimited_output_does_not_delay_neighbours() {
    let mut bomb = Bomb::of("output, streamed", OUTPUT, 1).twice();
    bomb.streams = true;
    bomb.assert_fair();
}

/// The kernel does part of its work for packets on `lo` outside the CPU account of any sandbox.
#[test]
fn a_flood_of_datagrams_delays_little_more_than_loops() {
    let loops = Bomb::of("8 loops", FEW_LOOPS, 8);
    Bomb::of("datagrams on lo", UDP, 8).disturbs_little_more_than(&loops);
}

#[test]
fn a_flood_over_connections_delays_little_more_than_loops() {
    let loops = Bomb::of("8 loops", FEW_LOOPS, 8);
    Bomb::of("connections on lo", TCP, 8).disturbs_little_more_than(&loops);
}
