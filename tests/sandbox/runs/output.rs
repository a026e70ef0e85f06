//! The output limit is exact and enforced at once.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use cofferdam_core::{OutputSink, Stream};
use cofferdam_test_support::{self as support, Program, ending, stdout_of};

fn print_bytes(stream: u8, bytes: u64) -> Program {
    Program::sh(&format!("head -c {bytes} /dev/zero >&{stream}"))
        .limits(|limits| limits.output_bytes_max = Some(100_000))
}

#[test]
fn output_of_exactly_the_limit_is_kept() {
    let Some(host) = support::host() else { return };
    assert_eq!(stdout_of(&host.run(print_bytes(1, 100_000))).len(), 100_000);
    let report = host.run(print_bytes(2, 100_000));
    assert_eq!(ending(&report), ("exited", Some(0)));
    assert_eq!((report.stderr.bytes.len(), report.stderr.truncated), (100_000, false));
}

#[test]
fn one_byte_more_ends_the_run_and_keeps_output_up_to_the_limit() {
    let Some(host) = support::host() else { return };
    for stream in [1, 2] {
        let report = host.run(print_bytes(stream, 100_001));
        assert_eq!(ending(&report), ("output_limit", None), "stream {stream}");
        let captured = if stream == 1 { &report.stdout } else { &report.stderr };
        assert_eq!((captured.bytes.len(), captured.truncated), (100_000, true));
    }
}

#[test]
fn a_flood_ends_its_run_long_before_the_time_limit() {
    let Some(host) = support::quiet_host() else { return };
    for script in
        ["exec yes", "exec yes >&2", "yes & yes >&2", "trap '' PIPE TERM; while :; do yes; done"]
    {
        let (report, waited) = host.timed(Program::sh(script));
        assert_eq!(report.outcome.word(), "output_limit", "{script}");
        assert!(waited < Duration::from_secs(1), "{script}: {waited:?}");
    }
}

/// Takes no output until it must.
struct Full(Sender<usize>);

impl OutputSink for Full {
    fn take(&mut self, _: Stream, bytes: &[u8]) {
        self.0.send(bytes.len()).unwrap();
    }

    fn has_room(&self) -> bool {
        false
    }
}

#[test]
fn a_full_sink_blocks_the_program_and_gets_the_rest_at_its_end() {
    let Some(host) = support::host() else { return };
    let (sender, taken) = channel();
    let short = Program::sh("head -c 1000 /dev/zero; head -c 500 /dev/zero >&2");
    let report = host.run_into(short, Box::new(Full(sender)));
    assert_eq!(ending(&report), ("exited", Some(0)));
    assert_eq!((report.stdout.bytes.len(), report.stderr.bytes.len()), (1000, 500));
    assert_eq!(taken.iter().sum::<usize>(), 1500);

    // More than a pipe holds, so the program waits for room until its time limit.
    let (sender, taken) = channel();
    let long = Program::sh("yes").limits(|limits| limits.wall = Duration::from_millis(300));
    let report = host.run_into(long, Box::new(Full(sender)));
    assert_eq!(ending(&report), ("timed_out", None));
    assert_eq!(taken.iter().sum::<usize>(), report.stdout.bytes.len());
    assert!(report.stdout.bytes.len() <= 1 << 20, "{}", report.stdout.bytes.len());
}

#[test]
fn without_an_output_limit_all_output_is_kept() {
    let Some(host) = support::host() else { return };
    let report = host.run(print_bytes(1, 3 << 20).limits(|limits| limits.output_bytes_max = None));
    assert_eq!(stdout_of(&report).len(), 3 << 20);
}

/// Blocks the thread that delivers output until no other process locks the file, like a tenant's
/// thread that holds the lock of a pipe, and sends whether that happened.
struct UntilUnlocked(std::fs::File, Sender<bool>);

impl OutputSink for UntilUnlocked {
    fn take(&mut self, _: Stream, _: &[u8]) {
        let unlocked = || self.0.try_lock().is_ok();
        self.1.send(support::processes::eventually(Duration::from_secs(5), unlocked)).unwrap();
    }
}

#[test]
fn a_blocked_output_reader_does_not_delay_the_time_limit() {
    let Some(host) = support::host() else { return };
    let held = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(held.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .unwrap();
    let program = Program::python(
        "import fcntl, time\n\
         held = open('/held')\n\
         fcntl.flock(held, fcntl.LOCK_EX)\n\
         print('held', flush=True)\n\
         time.sleep(60)\n",
    );
    let program = program
        .bind(held.path(), "/held", true)
        .limits(|limits| limits.wall = Duration::from_secs(3));
    let (sender, unlocked) = channel();
    let sink = UntilUnlocked(held.reopen().unwrap(), sender);
    let report = host.run_into(program, Box::new(sink));
    assert_eq!(ending(&report), ("timed_out", None));
    assert_eq!(unlocked.iter().collect::<Vec<_>>(), [true]);
}
