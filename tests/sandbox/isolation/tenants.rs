//! Two concurrent runs: neither takes resources from the other, and no name leads from one to the
//! other.

use cofferdam_core::Outcome;
use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};

#[test]
fn two_runs_can_have_two_hundred_processes_each() {
    let Some(host) = support::host() else { return };
    let crowd = || {
        Program::python(
            "import os, signal, sys\n\
             children = []\n\
             for n in range(199):\n\
             \u{20}   child = os.fork()\n\
             \u{20}   if child == 0: signal.pause()\n\
             \u{20}   children.append(child)\n\
             print('up', flush=True)\n\
             sys.stdin.read()\n\
             alive = sum(os.waitpid(child, os.WNOHANG) == (0, 0) for child in children)\n\
             print(alive + 1, flush=True)\n",
        )
    };
    let mut crowds = [host.start(crowd()), host.start(crowd())];
    crowds.iter_mut().for_each(|crowd| crowd.wait_for("up\n"));
    assert_ne!(crowds[0].host_uid, crowds[1].host_uid);
    for crowd in crowds {
        assert_eq!(lines_of(&crowd.finish()), ["up", "200"]);
    }
}

#[test]
fn a_run_that_forks_endlessly_does_not_stop_another_from_forking() {
    let Some(host) = support::host() else { return };
    let mut bomb = host.start(Program::python(
        "import os\n\
         print('up', flush=True)\n\
         while True:\n\
         \u{20}   try: os.fork()\n\
         \u{20}   except OSError: pass\n",
    ));
    bomb.wait_for("up\n");
    let report = host.run(Program::sh("for n in 1 2 3 4 5; do /bin/true || exit 1; done"));
    assert_eq!(report.outcome, Outcome::Exited { code: 0 });
    assert_eq!(bomb.cancel().outcome, Outcome::Cancelled);
}

/// Creates an object under a name, reports it, and keeps it until stdin ends.
const MAKE: &str = "import ctypes, errno, os, socket, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def result(value): return 'made' if value >= 0 else errno.errorcode[ctypes.get_errno()]\n";
const KEEP: &str = "print('up', flush=True)\nsys.stdin.read()\n";

/// Checks that what `make` creates in a live run cannot be found by `find` in another, and can be
/// created there again.
#[track_caller]
fn is_no_channel(make: &str, find: &str) {
    let Some(host) = support::host() else { return };
    let mut maker = host.start(Program::python(&format!("{MAKE}print({make})\n{KEEP}")));
    maker.wait_for("up\n");
    let found = host.run(Program::python(&format!("{MAKE}print({find})\nprint({make})\n")));
    let made_there = lines_of(&maker.finish());
    assert_eq!(made_there, ["made", "up"]);
    let lines = lines_of(&found);
    assert!(["ENOENT", "ECONNREFUSED", "False"].contains(&lines[0].as_str()), "{lines:?}");
    assert_eq!(lines[1], "made");
}

#[test]
fn abstract_sockets_are_no_channel() {
    is_no_channel(
        "[globals().update(s=socket.socket(1)), s.bind('\\0channel'), s.listen(), 'made'][-1]",
        "errno.errorcode[socket.socket(1).connect_ex('\\0channel')]",
    );
}

#[test]
fn loopback_ports_are_no_channel() {
    is_no_channel(
        "[globals().update(s=socket.create_server(('127.0.0.1', 4040))), 'made'][-1]",
        "errno.errorcode[socket.socket().connect_ex(('127.0.0.1', 4040))]",
    );
}

#[test]
fn system_v_shared_memory_is_no_channel() {
    is_no_channel(
        "result(libc.shmget(0x1234, 4096, 0o1666))",
        "result(libc.shmget(0x1234, 4096, 0o666))",
    );
}

#[test]
fn system_v_semaphores_are_no_channel() {
    is_no_channel(
        "result(libc.semget(0x1234, 1, 0o1666))",
        "result(libc.semget(0x1234, 1, 0o666))",
    );
}

#[test]
fn system_v_messages_are_no_channel() {
    is_no_channel("result(libc.msgget(0x1234, 0o1666))", "result(libc.msgget(0x1234, 0o666))");
}

#[test]
fn posix_message_queues_are_no_channel() {
    is_no_channel(
        "result(libc.mq_open(b'/channel', os.O_CREAT | os.O_RDWR, 0o666, None))",
        "result(libc.mq_open(b'/channel', os.O_RDWR))",
    );
}

#[test]
fn names_in_shared_memory_are_no_channel() {
    is_no_channel(
        "[open('/dev/shm/channel', 'w').write('x'), 'made'][-1]",
        "os.path.exists('/dev/shm/channel')",
    );
}

#[test]
fn keyrings_are_refused() {
    let Some(host) = support::host() else { return };
    // glibc has no wrappers, and the library of the tool `keyctl` is rarely installed. So the calls
    // are made by number, for the known machines.
    let report = host.run(Program::python(
        "import ctypes, errno, os\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         add_key, request_key, keyctl = \
         {'x86_64': (248, 249, 250), 'aarch64': (217, 218, 219)}[os.uname().machine]\n\
         def call(*args):\n\
         \u{20}   print(libc.syscall(*args), errno.errorcode[ctypes.get_errno()])\n\
         call(add_key, b'user', b'channel', b'x', 1, -4)\n\
         call(request_key, b'user', b'channel', None, -4)\n\
         call(keyctl, 0, -4, 1)\n",
    ));
    assert_eq!(lines_of(&report), ["-1 ENOSYS"; 3]);
}

#[test]
fn ipc_objects_of_a_run_are_gone_in_the_next_of_the_same_slot() {
    let Some(host) = support::host() else { return };
    let slot = host.host_id();
    let run = |script: &str| {
        stdout_of(&host.try_run_as(&slot, Program::python(&format!("{MAKE}{script}"))).unwrap())
    };
    let shm = |flags: &str| format!("print(result(libc.shmget(0x1234, 4096, {flags})))");
    assert_eq!(run(&shm("0o1666")), "made\n");
    assert_eq!(run(&shm("0o666")), "ENOENT\n");
    let mq = |flags: &str| format!("print(result(libc.mq_open(b'/left', {flags}, 0o666, None)))");
    assert_eq!(run(&mq("os.O_CREAT | os.O_RDWR")), "made\n");
    assert_eq!(run(&mq("os.O_RDWR")), "ENOENT\n");
}
