//! The types of cofferdam-core in the API of this crate. cargo-semver-checks does not look into other
//! crates, so this names each of them with its fields, variants and methods, as callers may. A change
//! that would break callers breaks this file.

#![cfg(test)]

use std::time::Duration;

use cofferdam_sandbox::{
    CapturedStream, Enforced, LimitKind, Limits, NotStarted, Outcome, RunReport, SetupFailure,
    Stream, Timings, Usage,
};

#[test]
fn callers_can_make_and_take_apart_a_report() {
    let stream = CapturedStream { bytes: b"out".to_vec(), bytes_total: 3, truncated: false };
    assert_eq!((&*stream.text(), stream.whole_characters()), ("out", &b"out"[..]));
    let usage = Usage {
        wall_ms: 1,
        cpu_ms: 2,
        memory_peak_bytes: 3,
        memory_peak_source: "cgroup2",
        processes_peak: Some(4),
        oom_kills: Some(5),
        stdout_bytes: 6,
        stderr_bytes: 7,
    };
    let enforced = Enforced {
        namespaces: vec!["pid"],
        seccomp: Some("default".to_owned()),
        memory: Some("cgroup2"),
        processes: None,
        disk: None,
        cpu: None,
    };
    let timings = Timings { prepare: Duration::ZERO, run: Duration::ZERO, cleanup: Duration::ZERO };
    let report = RunReport {
        outcome: Outcome::Exited { code: 0 },
        stdout: stream.clone(),
        stderr: stream,
        usage,
        enforced,
        not_enforced: vec!["cpu: no such controller".to_owned()],
        timings,
        standby: false,
    };
    let RunReport { outcome, stdout, stderr, usage, enforced, not_enforced, timings, standby } =
        report;
    assert_eq!((outcome.word(), stdout == stderr, standby), ("exited", true, false));
    assert_eq!((usage.wall_ms, timings.run, not_enforced.len()), (1, Duration::ZERO, 1));
    assert_eq!(enforced.seccomp.as_deref(), Some("default"));
}

/// Compiles only with these variants and no others.
fn name_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited { code: _ } => "exited",
        Outcome::Signaled { signal: _ } => "signaled",
        Outcome::LimitHit { kind, code: _ } => match kind {
            LimitKind::WallTime
            | LimitKind::CpuTime
            | LimitKind::Memory
            | LimitKind::Processes
            | LimitKind::Disk
            | LimitKind::Output => kind.word(),
        },
        Outcome::Cancelled => "cancelled",
    }
}

#[test]
fn callers_can_match_every_outcome() {
    assert_eq!(name_of(Outcome::Cancelled), "cancelled");
    assert_eq!(name_of(Outcome::LimitHit { kind: LimitKind::Disk, code: None }), "disk");
    for stream in [Stream::Stdout, Stream::Stderr] {
        match stream {
            Stream::Stdout | Stream::Stderr => {}
        }
    }
}

#[test]
fn callers_can_match_every_failure() {
    let failure =
        SetupFailure { step: "mount".to_owned(), reason: "EPERM".to_owned(), errno: Some(1) };
    assert_eq!(failure.to_string(), "sandbox: mount: EPERM");
    for (failed, text) in [
        (NotStarted::Setup(failure.clone()), "sandbox: mount: EPERM"),
        (NotStarted::Exec { errno: 2 }, "sandbox: exec: ENOENT"),
    ] {
        let is_error: &dyn std::error::Error = &failed;
        assert_eq!(is_error.to_string(), text);
        match failed {
            NotStarted::Setup(SetupFailure { step: _, reason: _, errno: _ })
            | NotStarted::Exec { errno: _ } => {}
        }
    }
}

#[test]
fn callers_can_set_every_limit() {
    let limits = Limits {
        wall: Duration::from_secs(1),
        cpu_seconds_max: 1,
        cpu_total_max: None,
        memory_bytes_max: 1,
        processes_max: 1,
        cpus_milli_max: None,
        disk_bytes_max: 1,
        disk_inodes_max: 1,
        file_bytes_max: 1,
        open_files_max: 1,
        output_bytes_max: None,
    };
    assert_ne!(limits, Limits::default());
    assert_eq!(limits.clone().with_wall(Duration::from_millis(1500)).cpu_seconds_max, 2);
}
