//! Tasks: what is collected and when, their limits, and their output.

use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{NotStarted, OutputSink, Stream};
use cofferdam_test_support::processes::{in_own_process, processes_of};
use cofferdam_test_support::task::list;
use cofferdam_test_support::{self as support, MIB, TaskBuilder};

#[test]
fn the_workspace_is_collected_after_every_ending() {
    let Some(host) = support::host() else { return };
    let script = |end: &str| format!("echo made >out; mkdir dir; echo more >>given; {end}");
    for (end, wall_ms, ending) in [
        ("exit 0", 60_000, ("exited", Some(0))),
        ("exit 3", 60_000, ("exited", Some(3))),
        ("kill -9 $$", 60_000, ("signaled", Some(137))),
        ("sleep 60", 2000, ("timed_out", None)),
    ] {
        let task = TaskBuilder::sh(&script(end)).file("given", 3).wall_ms(wall_ms);
        let ran = task.run(host.executor());
        assert_eq!(ran.ending(), ending, "{end}");
        let names = ran.collected.unwrap();
        let names: Vec<(&str, u64)> = names.iter().map(|(n, b)| (n.as_str(), *b)).collect();
        assert!(matches!(names[..], [("dir", _), ("given", 8), ("out", 5)]), "{end}: {names:?}");
    }
}

/// Cancels a task as soon as it has printed something.
struct CancelsAtOutput(CancelToken);

impl OutputSink for CancelsAtOutput {
    fn take(&mut self, _: Stream, _: &[u8]) {
        self.0.cancel();
    }
}

#[test]
fn no_process_is_alive_during_collection() {
    let Some(host) = support::host() else { return };
    let script = "trap '' TERM INT HUP; for n in 1 2 3; do \
                  (while :; do echo line >>file$n; done) & setsid sh -c 'while :; do echo x >>own; done' & \
                  done; touch begun; echo begun; wait";
    let task = TaskBuilder::sh(script).limits(|limits| limits.wall = Duration::from_secs(60));
    let cancels = Box::new(CancelsAtOutput(task.cancel.clone()));
    let mut looks = 0;
    let mut look = |workspace: BorrowedFd<'_>, uid| {
        looks += 1;
        assert_eq!(processes_of(uid), Vec::<String>::new());
        let before = list(workspace);
        assert!(before.iter().any(|(name, _)| name == "begun"), "{before:?}");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(list(workspace), before);
    };
    let report = task.execute(host.executor(), Some(cancels), &mut look).unwrap();
    assert_eq!((report.outcome.word(), looks), ("cancelled", 1));
    assert!(report.timings.cleanup < Duration::from_secs(5), "{:?}", report.timings);
}

#[test]
fn slow_collection_does_not_count_as_cleanup_time() {
    let Some(host) = support::quiet_host() else { return };
    let mut look = |_: BorrowedFd<'_>, _| thread::sleep(Duration::from_millis(700));
    let report = TaskBuilder::sh("true").execute(host.executor(), None, &mut look).unwrap();
    assert!(report.timings.cleanup < Duration::from_millis(600), "{:?}", report.timings);
}

#[test]
fn nothing_is_collected_from_a_program_that_never_started() {
    let Some(host) = support::host() else { return };
    let task = TaskBuilder::sh("sleep 60");
    task.cancel.cancel();
    let ran = task.run(host.executor());
    // A token raised before the start is noticed before the program starts or right after, so the program must not
    // end by itself in between.
    assert_eq!(ran.ending(), ("cancelled", None));

    let refused = TaskBuilder::sh("true").limits(|limits| limits.memory_bytes_max = 4096);
    let ran = refused.run(host.executor());
    if host.bounds_memory() {
        assert!(matches!(ran.report, Err(NotStarted::Setup(_))), "{:?}", ran.report);
        assert_eq!(ran.collected, None);
    }
}

#[test]
fn collection_reads_the_workspace_even_if_the_tenant_replaces_it() {
    let Some(host) = support::host() else { return };
    for tricks in [
        "rmdir /workspace; mv /workspace /tmp/elsewhere; ln -sfn /etc /workspace",
        "cd /; rm -rf /workspace; mkdir /workspace; echo x >/workspace/left",
        "chmod 000 /workspace",
        "mount -t tmpfs none /workspace; mount --bind /etc /workspace",
    ] {
        let script = format!("({tricks}) 2>/dev/null; exit 0");
        let task = TaskBuilder::sh(&format!("echo mine >left; {script}")).file("given", 1);
        let ran = task.run(host.executor());
        assert_eq!(ran.stdout(), "", "{tricks}");
        let names: Vec<String> = ran.collected.unwrap().into_iter().map(|(name, _)| name).collect();
        let gone = tricks.contains("rm -rf");
        assert_eq!(names.contains(&"given".to_owned()), !gone, "{tricks}: {names:?}");
        assert!(names.iter().all(|name| ["etc", "given", "left"].contains(&&**name)), "{names:?}");
    }
}

#[test]
fn a_snapshot_does_not_reduce_the_programs_disk_limit() {
    let Some(host) = support::host() else { return };
    let bounds = |limits: &mut cofferdam_core::Limits| {
        limits.disk_bytes_max = MIB;
        limits.disk_inodes_max = 10;
    };
    let fits = TaskBuilder::sh("head -c 1000000 /dev/zero >a && wc -c <big && rm a")
        .limits(bounds)
        .file("big", 8 << 20);
    assert_eq!(fits.run(host.executor()).stdout().trim(), (8 << 20).to_string());
    let full = TaskBuilder::sh("head -c 2000000 /dev/zero >a").limits(bounds).file("big", 8 << 20);
    let ran = full.run(host.executor());
    assert_eq!(ran.ending().0, "disk_limit");
    assert!(ran.report.unwrap().stderr.text().contains("No space left"));
    let (_, written) = ran.collected.unwrap().swap_remove(0);
    assert!((MIB * 9 / 10..=MIB).contains(&written), "{written}");
    let files = TaskBuilder::sh("n=0; while touch f$n; do n=$((n+1)); done; exit 1").limits(bounds);
    assert_eq!(files.file("big", 1).run(host.executor()).ending().0, "disk_limit");
}

#[test]
fn limits_end_tasks_like_runs() {
    let Some(host) = support::host() else { return };
    let half_a_second = Some(Duration::from_millis(500));
    if host.counts_cpu() {
        let spin = TaskBuilder::sh("for n in 1 2; do (while :; do :; done) & done; wait")
            .limits(|limits| limits.cpu_total_max = half_a_second);
        let ran = spin.run(host.executor());
        assert_eq!((ran.ending().0, ran.collected), ("cpu_limit", Some(Vec::new())));
    }
    let forks = TaskBuilder::sh("for n in 1 2 3 4 5 6 7 8; do sleep 5 & done; exit 1")
        .limits(|limits| limits.processes_max = 4);
    assert_eq!(forks.run(host.executor()).ending().0, "process_limit");
    if host.bounds_memory() {
        let grow = TaskBuilder::sh("head -c 200000000 /dev/zero | tail")
            .limits(|limits| limits.memory_bytes_max = 32 * MIB);
        assert_eq!(grow.run(host.executor()).ending().0, "memory_limit");
    }
}

#[test]
fn a_failure_to_fill_the_workspace_is_reported() {
    use cofferdam::executor::{Room, RunInput, WorkspaceInput};
    use cofferdam_core::{ProgramFile, SetupFailure, Watch};
    let Some(host) = support::host() else { return };
    let failure = SetupFailure::from_words("snapshot a", "no such thing");
    let spec = cofferdam_core::RunSpec {
        argv: vec![c"true".to_owned()],
        program: ProgramFile::At(c"/bin/true".to_owned()),
        env: Vec::new(),
        workdir: "/workspace".into(),
        stdin: cofferdam_core::StdinSource::Null,
        limits: cofferdam_core::Limits::default(),
        ..cofferdam_core::RunSpec::default()
    };
    let mut fill = |_: BorrowedFd<'_>, _| Err(failure.clone());
    let mut collect = |_: BorrowedFd<'_>| panic!("collected without a run");
    let room = Room::default();
    let task = RunInput {
        spec,
        workspace: WorkspaceInput::Filled { room, fill: &mut fill, collect: &mut collect },
        retained: Default::default(),
    };
    let watch = Watch::of(CancelToken::new().unwrap());
    let Err(NotStarted::Setup(told)) = host.executor().execute(task, &watch, None) else {
        panic!("the task ran")
    };
    assert_eq!(told, failure);
}

#[test]
fn the_local_backend_reports_what_it_enforces() {
    let Some(host) = support::host() else { return };
    let told = host.executor().describe().unwrap();
    assert_eq!(told.enforced, host.sandbox().enforced());
    assert_eq!(told.not_enforced, host.sandbox().not_enforced());
}

/// Counts the output and is its only receiver.
struct Counting(Arc<AtomicU64>);

impl OutputSink for Counting {
    fn take(&mut self, _: Stream, bytes: &[u8]) {
        self.0.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}

/// A value of this process's memory statistics, in bytes.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

#[test]
fn a_gibibyte_of_output_is_counted_but_not_held_in_memory() {
    in_own_process("runs::tasks::a_gibibyte_of_output_is_counted_but_not_held_in_memory", || {
        let Some(host) = support::quiet_host() else { return };
        assert_eq!(TaskBuilder::sh("echo warm").run(host.executor()).stdout(), "warm\n");
        // Resets the peak.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let (before, counted) = (memory("VmRSS:"), Arc::new(AtomicU64::new(0)));
        let sink = Some(Box::new(Counting(Arc::clone(&counted))) as Box<dyn OutputSink>);
        let task = TaskBuilder::at("/bin/dd", &["dd", "if=/dev/zero", "bs=1M", "count=1024"]);
        let began = Instant::now();
        let report = task.execute(host.executor(), sink, &mut |_, _| {}).unwrap();
        let (took, grown) = (began.elapsed(), memory("VmHWM:").saturating_sub(before));
        assert_eq!(report.outcome.shell_code(), Some(0), "{}", report.outcome.word());
        let total = report.stdout.bytes_total + report.stderr.bytes_total;
        assert_eq!((report.stdout.bytes_total, counted.load(Ordering::Relaxed)), (1 << 30, total));
        assert!(report.stdout.bytes.is_empty() && !report.stdout.truncated);
        eprintln!("1 GiB in {took:?}: {:.0} MB/s, {grown} bytes more", 1073.7 / took.as_secs_f64());
        assert!(grown < 8 * MIB, "{grown} bytes more");
    });
}
