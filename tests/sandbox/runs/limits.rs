//! The limits of CPU, memory, processes, files and disk.

use std::time::Duration;

use cofferdam_core::{NotStarted, Outcome};
use cofferdam_test_support::{self as support, MIB, Program, ending, lines_of};

#[test]
fn a_process_that_uses_up_its_cpu_seconds_is_ended() {
    let Some(host) = support::host() else { return };
    let report =
        host.run(Program::sh("while :; do :; done").limits(|limits| limits.cpu_seconds_max = 1));
    assert_eq!(ending(&report), ("cpu_limit", Some(152)), "{:?}", report.usage);
    // The limit counts ticks, this test does not. On a busy machine they differ much.
    assert!((500..5_000).contains(&report.usage.cpu_ms), "{:?}", report.usage);
}

#[test]
fn a_process_that_ignores_the_signal_is_ended_a_second_later() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::sh("trap '' XCPU; while :; do :; done")
            .limits(|limits| limits.cpu_seconds_max = 1),
    );
    assert_eq!(ending(&report), ("cpu_limit", Some(137)), "{:?}", report.usage);
}

#[test]
fn the_cpu_time_of_many_processes_counts_together() {
    let Some(host) = support::host() else { return };
    if !host.counts_cpu() {
        return;
    }
    // No single process gets near a second.
    let bound = |program: Program| {
        program.limits(|limits| limits.cpu_total_max = Some(Duration::from_millis(500)))
    };
    let spin = "for n in 1 2 3 4; do (while :; do :; done) & done; wait";
    let report = host.run(bound(Program::sh(spin)));
    assert_eq!(ending(&report), ("cpu_limit", None));
    assert!((500..3_000).contains(&report.usage.cpu_ms), "{:?}", report.usage);
    let storm = "while :; do /bin/true; done";
    assert_eq!(host.run(bound(Program::sh(storm))).outcome.word(), "cpu_limit", "short children");
}

#[test]
fn memory_beyond_the_limit_ends_a_program_near_the_limit() {
    let Some(host) = support::host() else { return };
    if !host.bounds_memory() {
        return;
    }
    let limit = 64 * MIB;
    let report = host.run(
        Program::python("block = bytearray(400 << 20); print('got it')")
            .limits(|limits| limits.memory_bytes_max = limit),
    );
    assert_eq!(ending(&report), ("memory_limit", Some(137)), "{}", report.stderr.text());
    let peak = report.usage.memory_peak_bytes;
    assert!((limit / 10 * 9..=limit).contains(&peak), "peak {peak}");
}

#[test]
fn files_in_memory_count_as_memory() {
    let Some(host) = support::host() else { return };
    if !host.bounds_memory() {
        return;
    }
    for place in ["/tmp", "/dev/shm", "/workspace", "memfd"] {
        let report = host.run(
            Program::python(&format!(
                "import os\n\
                 place = {place:?}\n\
                 fd = os.memfd_create('x') if place == 'memfd' else \
                 os.open(place + '/x', os.O_CREAT | os.O_WRONLY)\n\
                 for n in range(200): os.write(fd, bytes(1 << 20))\n"
            ))
            .limits(|limits| {
                limits.memory_bytes_max = 64 * MIB;
                limits.file_bytes_max = 512 * MIB;
            }),
        );
        assert_eq!(report.outcome.word(), "memory_limit", "{place}: {}", report.stderr.text());
    }
}

#[test]
fn a_program_that_survives_the_oom_kill_of_a_child_ends_normally() {
    let Some(host) = support::host() else { return };
    if !host.bounds_memory() {
        return;
    }
    let report = host.run(
        Program::sh("python3 -c 'bytearray(400 << 20)'; echo $?")
            .limits(|limits| limits.memory_bytes_max = 64 * MIB),
    );
    assert_eq!(lines_of(&report), ["137"]);
}

/// Forks until it fails, prints how many processes there were, and exits with the given code.
const FORK_ALL: &str = "import os, signal, sys\n\
    children = []\n\
    try:\n\
    \u{20}   while True:\n\
    \u{20}       child = os.fork()\n\
    \u{20}       if child == 0: signal.pause()\n\
    \u{20}       children.append(child)\n\
    except BlockingIOError: print(len(children) + 1)\n";

#[test]
fn fork_fails_at_the_limit_of_processes() {
    let Some(host) = support::host() else { return };
    for limit in [40, 256] {
        let bound = |code: u8| {
            Program::python(&format!("{FORK_ALL}os._exit(sys.stdout.flush() or {code})"))
                .limits(|limits| limits.processes_max = limit)
        };
        let failed = host.run(bound(1));
        assert_eq!(failed.stdout.text(), format!("{limit}\n"));
        assert_eq!(ending(&failed), ("process_limit", Some(1)), "of {limit}");
        let fine = host.run(bound(0));
        assert_eq!(ending(&fine), ("exited", Some(0)), "a program may cope with it");
    }
}

#[test]
fn threads_are_counted_as_processes() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::python(
            "import threading\n\
             done = threading.Event()\n\
             count = 1\n\
             try:\n\
             \u{20}   while True: threading.Thread(target=done.wait).start(); count += 1\n\
             except RuntimeError: print(count)\n\
             done.set()\n",
        )
        .limits(|limits| limits.processes_max = 50),
    );
    assert_eq!(lines_of(&report), ["50"]);
}

#[test]
fn a_file_cannot_grow_beyond_its_limit() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::sh(
            "head -c 2000000 /dev/zero >/tmp/file; code=$?; stat -c %s /tmp/file; exit $code",
        )
        .limits(|limits| limits.file_bytes_max = MIB),
    );
    assert_eq!(report.stdout.text(), "1048576\n");
    assert_eq!(ending(&report), ("disk_limit", Some(153)));
}

#[test]
fn all_writable_places_share_one_disk_of_the_given_size() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::sh(
            "for place in /workspace /tmp /dev/shm /run /var/tmp; do
                 head -c 2097152 /dev/zero >$place/file || code=$?
                 stat -c %s $place/file
             done; exit $code",
        )
        .limits(|limits| limits.disk_bytes_max = 8 * MIB),
    );
    let sizes: Vec<u64> = report.stdout.text().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(sizes.len(), 5, "{}", report.stderr.text());
    assert_eq!(sizes.iter().sum::<u64>(), 8 * MIB, "{sizes:?}");
    assert!(report.stderr.text().contains("No space left"), "{}", report.stderr.text());
    assert_eq!(ending(&report), ("disk_limit", Some(1)));
}

#[test]
fn the_number_of_empty_files_is_limited() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::python(
            "import errno, sys\n\
             count = 0\n\
             try:\n\
             \u{20}   while True: open(f'/tmp/{count}', 'w').close(); count += 1\n\
             except OSError as error: print(count, errno.errorcode[error.errno]); sys.exit(1)\n",
        )
        .limits(|limits| limits.disk_inodes_max = 2_000),
    );
    assert_eq!(ending(&report), ("disk_limit", Some(1)), "{}", report.stdout.text());
    let stdout = report.stdout.text();
    let (count, errno) = stdout.trim().split_once(' ').unwrap();
    let count: u64 = count.parse().unwrap();
    assert_eq!(errno, "ENOSPC");
    assert!((2_000..2_256).contains(&count), "{count}");
}

#[test]
fn the_process_limits_are_as_requested_and_cannot_be_raised() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::python(
            "import resource as r\n\
             for name in 'CPU', 'NOFILE', 'NPROC', 'CORE', 'FSIZE':\n\
             \u{20}   limit = getattr(r, 'RLIMIT_' + name)\n\
             \u{20}   soft, hard = r.getrlimit(limit)\n\
             \u{20}   try: r.setrlimit(limit, (hard + 1, hard + 1)); print('raised')\n\
             \u{20}   except (ValueError, OSError): print(name, soft, hard)\n",
        )
        .limits(|limits| limits.cpu_seconds_max = 7),
    );
    assert_eq!(
        lines_of(&report),
        ["CPU 7 8", "NOFILE 256 256", "NPROC 256 256", "CORE 0 0", "FSIZE 67108864 67108864"]
    );
}

#[test]
fn the_number_of_open_files_is_limited() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import errno, os\n\
         last = 0\n\
         try:\n\
         \u{20}   while True: last = os.open('/dev/null', os.O_RDONLY)\n\
         except OSError as error: print(last, errno.errorcode[error.errno])\n",
    ));
    assert_eq!(lines_of(&report), ["255 EMFILE"]);
}

#[test]
fn a_limit_too_small_for_a_box_is_told_before_anything_starts() {
    let Some(host) = support::host() else { return };
    if !host.bounds_memory() {
        return;
    }
    for bytes in [0, 4096, 64 << 10] {
        let small = Program::sh("echo x").limits(|limits| limits.memory_bytes_max = bytes);
        match host.try_run(small) {
            Err(NotStarted::Setup(failure)) => assert!(failure.errno.is_none(), "{failure}"),
            Ok(report) => assert_eq!(report.outcome.word(), "memory_limit", "{bytes}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_limit_of_one_process_allows_one_program() {
    let Some(host) = support::host() else { return };
    let alone = |script| Program::sh(script).limits(|limits| limits.processes_max = 1);
    assert_eq!(lines_of(&host.run(alone("echo alone"))), ["alone"]);
    assert_eq!(host.run(alone("/bin/true; exit 2")).outcome.word(), "process_limit");
}

#[test]
fn limits_that_are_not_reached_change_nothing() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("exit 7"));
    assert_eq!(report.outcome, Outcome::Exited { code: 7 });
    assert_eq!(report.not_enforced, host.sandbox().not_enforced());
}
