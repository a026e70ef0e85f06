//! Which descriptors a program has: its three streams and no other.

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use cofferdam_core::StdinSource;
use cofferdam_test_support::{self as support, Program, lines_of};
use nix::fcntl::{FcntlArg, fcntl};

/// Prints the descriptors of the program. The one used to list them is closed by then.
const LIST: &str = "import os\n\
    for fd in sorted(map(int, os.listdir('/proc/self/fd'))):\n\
    \u{20}   try: os.fstat(fd); print(fd)\n\
    \u{20}   except OSError: pass\n";

/// Descriptors without close-on-exec, open until the result is dropped.
fn inheritable_descriptors(count: usize) -> Vec<OwnedFd> {
    let null = File::open("/dev/null").unwrap();
    let duplicate = |_| {
        let raw = fcntl(null.as_fd(), FcntlArg::F_DUPFD(3)).unwrap();
        // SAFETY: F_DUPFD has just created this descriptor, and nothing else owns it.
        unsafe { OwnedFd::from_raw_fd(raw) }
    };
    (0..count).map(duplicate).collect()
}

#[test]
fn a_program_has_only_its_three_streams() {
    let Some(host) = support::host() else { return };
    let held = inheritable_descriptors(38);
    assert_eq!(lines_of(&host.run(Program::python(LIST))), ["0", "1", "2"]);
    drop(held);
}

#[test]
fn a_sandbox_has_no_descriptor_of_a_concurrent_run() {
    let Some(host) = support::host() else { return };
    let mut beside = host.start(Program::sh("echo up; cat"));
    beside.wait_for("up\n");
    assert_eq!(lines_of(&host.run(Program::python(LIST))), ["0", "1", "2"]);
    assert_eq!(lines_of(&beside.finish()), ["up"]);
}

#[test]
fn stdin_is_the_null_device_by_default() {
    let Some(host) = support::host() else { return };
    let describe = "import os, stat, sys\n\
        mode = os.fstat(0)\n\
        print('null' if (os.major(mode.st_rdev), os.minor(mode.st_rdev)) == (1, 3) else 'pipe')\n\
        print(len(sys.stdin.buffer.read()))\n";
    assert_eq!(lines_of(&host.run(Program::python(describe))), ["null", "0"]);
    let given = Program::python(describe).stdin(StdinSource::Bytes(vec![b'x'; 300_000]));
    assert_eq!(lines_of(&host.run(given)), ["pipe", "300000"]);
}

#[test]
fn unread_stdin_blocks_nothing() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("echo done").stdin(StdinSource::Bytes(vec![b'x'; 1 << 20])));
    assert_eq!(lines_of(&report), ["done"]);
}

/// Opening `/dev/stdout` or `/dev/stderr` checks the owner of the pipe.
#[test]
fn the_streams_can_be_opened_by_name() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("echo out >/dev/stdout; echo err >/dev/stderr"));
    assert_eq!(lines_of(&report), ["out"], "{}", report.stderr.text());
    assert_eq!(report.stderr.text(), "err\n");
    let given = Program::sh("cat /dev/stdin").stdin(StdinSource::Bytes(b"in\n".to_vec()));
    assert_eq!(lines_of(&host.run(given)), ["in"]);
}
