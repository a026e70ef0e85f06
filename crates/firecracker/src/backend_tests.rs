//! Tests of the whole backend with guests on threads.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::unistd::{getegid, geteuid};
use tempfile::{TempDir, tempdir};

use super::machine::{Hypervisor, Machine, MachinePlan, call_name, listen};
use super::micro_vms::{MicroVms, Settings};
use super::{guest, socket};
use cofferdam_core::executor::{
    Capabilities, Executor, FoundProgram, Room, RunInput, Unavailable, WorkspaceInput,
};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{
    CapturedStream, Enforced, Limits, NotStarted, Outcome, OutputSink, ProgramFile, RunReport,
    RunSpec, SetupFailure, StdinSource, Stream, Timings, Usage, Watch,
};
use cofferdam_tree::Owner;

/// What a guest does with its connection and its drive.
pub type Behaviour = Arc<dyn Fn(UnixStream, &Path) + Send + Sync>;

struct Threads {
    guest: Behaviour,
    booted: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Threads")
    }
}

struct OneThread {
    calls: UnixListener,
    guest: Option<thread::JoinHandle<()>>,
}

impl Hypervisor for Threads {
    fn boot(&self, plan: &MachinePlan<'_>) -> Result<Box<dyn Machine>, SetupFailure> {
        self.booted.fetch_add(1, Ordering::Relaxed);
        let calls = listen(plan.directory).unwrap();
        let connection = socket::connect(&plan.directory.join(call_name())).unwrap();
        let (guest, scratch) = (Arc::clone(&self.guest), plan.scratch.clone());
        let guest = Some(thread::spawn(move || guest(connection, &scratch)));
        Ok(Box::new(OneThread { calls, guest }))
    }
}

impl Machine for OneThread {
    fn calls(&self) -> &UnixListener {
        &self.calls
    }

    fn is_over(&mut self) -> Option<String> {
        let over = self.guest.as_ref().is_none_or(thread::JoinHandle::is_finished);
        over.then(|| "its thread is over".to_owned())
    }

    fn end(&mut self, _: Duration) -> Result<(), SetupFailure> {
        Ok(())
    }
}

/// A guest's executor that simulates programs.
#[derive(Debug)]
struct Scripted;

pub fn capabilities() -> Capabilities {
    let enforced = Enforced {
        namespaces: vec!["pid", "net"],
        seccomp: Some("default".to_owned()),
        memory: Some("cgroup2"),
        ..Enforced::default()
    };
    Capabilities { enforced, not_enforced: vec!["cpu: no such controller".to_owned()] }
}

impl Executor for Scripted {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        Ok(capabilities())
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        let file = File::open("/etc/passwd").unwrap().into();
        Ok(Some(FoundProgram { path: name.to_owned(), target: name.to_owned(), file }))
    }

    fn execute(
        &self,
        mut input: RunInput<'_>,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let mut sink = sink.unwrap();
        let place = tempdir().unwrap();
        let open = File::open(place.path()).unwrap();
        let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        input.fill(open.as_fd(), owner)?;
        let words: Vec<&str> = input.spec.argv.iter().map(|word| word.to_str().unwrap()).collect();
        let mut outcome = Outcome::Exited { code: 3 };
        let mut totals = [0, 0];
        match words[..] {
            ["refuse"] => return Err(NotStarted::Exec { errno: libc::EACCES }),
            ["until cancelled"] => {
                sink.take(Stream::Stdout, b"begun");
                totals[0] = 5;
                while !crate::session::vsock::is_raised(&watch.cancel) {
                    thread::sleep(Duration::from_millis(1));
                }
                outcome = Outcome::Cancelled;
            }
            ["flood"] => {
                while totals[0] < 3_000_000 {
                    while !sink.has_room() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    sink.take(Stream::Stdout, &[b'x'; 30_000]);
                    totals[0] += 30_000;
                }
            }
            _ => {
                let StdinSource::Bytes(stdin) = &input.spec.stdin else { panic!("no stdin") };
                let input = fs::read(place.path().join("in.txt")).unwrap();
                sink.take(Stream::Stdout, &input);
                sink.take(Stream::Stderr, stdin);
                totals = [input.len() as u64, stdin.len() as u64];
                fs::write(place.path().join("out.txt"), b"made").unwrap();
                symlink("/etc/passwd", place.path().join("trap")).unwrap();
            }
        }
        input.collect(open.as_fd());
        Ok(report(outcome, totals))
    }
}

pub fn report(outcome: Outcome, [stdout_bytes, stderr_bytes]: [u64; 2]) -> RunReport {
    let stream = |bytes_total| CapturedStream { bytes_total, ..CapturedStream::default() };
    let Capabilities { enforced, not_enforced } = capabilities();
    RunReport {
        outcome,
        stdout: stream(stdout_bytes),
        stderr: stream(stderr_bytes),
        usage: Usage {
            wall_ms: 5,
            cpu_ms: 4,
            memory_peak_bytes: 3,
            memory_peak_source: "cgroup2",
            processes_peak: Some(2),
            oom_kills: Some(1),
            stdout_bytes,
            stderr_bytes,
        },
        enforced,
        not_enforced,
        timings: Timings::default(),
        standby: false,
    }
}

fn good() -> Behaviour {
    Arc::new(|connection, drive| {
        // A probe disconnects.
        let _ = guest::serve(connection, Ok(&Scripted), drive);
    })
}

pub struct Fixture {
    vms: MicroVms<Threads>,
    booted: Arc<AtomicUsize>,
    work: TempDir,
}

/// A backend that waits for its guest for longer than any load delays it.
pub fn fixture(guest: Behaviour) -> Fixture {
    fixture_with(guest, |_| {})
}

/// The same with other time limits.
pub fn fixture_with(guest: Behaviour, change: impl FnOnce(&mut Settings)) -> Fixture {
    let work = tempdir().unwrap();
    let booted = Arc::new(AtomicUsize::new(0));
    let patient = Duration::from_secs(60);
    let mut settings = Settings {
        boot_wait: patient,
        answer_wait: patient,
        cancel_wait: patient,
        ..Settings::new(work.path().to_owned(), PathBuf::from("/"))
    };
    change(&mut settings);
    let threads = Threads { guest, booted: Arc::clone(&booted) };
    Fixture { vms: MicroVms::new(settings, threads), booted, work }
}

pub fn spec(argv: &str) -> RunSpec {
    RunSpec {
        argv: vec![CString::new(argv).unwrap()],
        env: Vec::new(),
        workdir: "/workspace".into(),
        stdin: StdinSource::Bytes(b"to the program".to_vec()),
        limits: Limits { wall: Duration::from_millis(500), ..Limits::default() },
        ..RunSpec::default()
    }
}

pub type Left = Vec<(String, Vec<u8>)>;

impl Fixture {
    /// Returns the answer, and the names and contents of the collected files.
    pub fn run(
        &self,
        spec: RunSpec,
        cancel: &CancelToken,
    ) -> (Result<RunReport, NotStarted>, Left) {
        let mut left = Vec::new();
        let input = RunInput {
            spec,
            retained: Default::default(),
            workspace: WorkspaceInput::Filled {
                room: Room { bytes: 4096, inodes: 10 },
                fill: &mut |place: BorrowedFd<'_>, _| {
                    let path =
                        format!("/proc/self/fd/{}/in.txt", std::os::fd::AsRawFd::as_raw_fd(&place));
                    fs::write(path, "from the host").unwrap();
                    Ok(())
                },
                collect: &mut |place: BorrowedFd<'_>| {
                    let path =
                        format!("/proc/self/fd/{}/", std::os::fd::AsRawFd::as_raw_fd(&place));
                    for entry in fs::read_dir(&path).unwrap() {
                        let name = entry.unwrap().file_name().into_string().unwrap();
                        let contents = fs::read(format!("{path}{name}")).unwrap_or_default();
                        left.push((name, contents));
                    }
                    left.sort();
                },
            },
        };
        let watch = Watch::of(cancel.clone());
        let answer = self.vms.execute(input, &watch, None);
        let remaining: Vec<_> = fs::read_dir(self.work.path()).unwrap().collect();
        assert!(remaining.is_empty(), "{remaining:?}");
        (answer, left)
    }

    pub fn failure(&self) -> String {
        let (answer, left) = self.run(spec("x"), &CancelToken::new().unwrap());
        assert!(left.is_empty(), "{left:?}");
        answer.unwrap_err().to_string()
    }
}

#[test]
fn a_job_returns_its_output_its_files_and_its_controls() {
    let fixture = fixture(good());
    let (answer, left) = fixture.run(spec("x"), &CancelToken::new().unwrap());
    let report = answer.unwrap();
    assert_eq!(report.outcome, Outcome::Exited { code: 3 });
    assert_eq!(
        (&*report.stdout.bytes, &*report.stderr.bytes),
        (&b"from the host"[..], &b"to the program"[..])
    );
    assert_eq!((report.stdout.bytes_total, report.stdout.truncated), (13, false));
    assert_eq!(report.usage.memory_peak_source, "cgroup2");
    assert_eq!(
        (&report.enforced, &report.not_enforced),
        (&capabilities().enforced, &capabilities().not_enforced)
    );
    let names: Vec<&str> = left.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["in.txt", "out.txt", "trap"]);
    assert_eq!((&*left[1].1, &*left[2].1), (&b"made"[..], &b""[..]));
}

#[test]
fn output_larger_than_the_queue_is_complete() {
    let fixture = fixture(good());
    let mut spec = spec("flood");
    spec.limits.output_bytes_max = Some(4_000_000);
    let report = fixture.run(spec, &CancelToken::new().unwrap()).0.unwrap();
    assert_eq!((report.stdout.bytes.len(), report.stdout.bytes_total), (3_000_000, 3_000_000));
}

#[test]
fn a_refusal_of_the_guest_is_the_answer() {
    let answer = fixture(good()).run(spec("refuse"), &CancelToken::new().unwrap()).0;
    assert_eq!(answer.unwrap_err(), NotStarted::Exec { errno: libc::EACCES });
}

#[test]
fn a_cancel_ends_the_run_and_keeps_what_it_printed() {
    let fixture = fixture(good());
    let cancel = CancelToken::new().unwrap();
    let raised = cancel.clone();
    let raising = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        raised.cancel();
    });
    let (answer, left) = fixture.run(spec("until cancelled"), &cancel);
    raising.join().unwrap();
    let report = answer.unwrap();
    assert_eq!((report.outcome, &*report.stdout.bytes), (Outcome::Cancelled, &b"begun"[..]));
    assert_eq!(left.len(), 1, "its files are kept");
}

#[test]
fn a_cancel_before_the_guest_is_ready_ends_the_machine() {
    let fixture = fixture(Arc::new(|_line, _| thread::sleep(Duration::from_secs(1))));
    let cancel = CancelToken::new().unwrap();
    cancel.cancel();
    let report = fixture.run(spec("x"), &cancel).0.unwrap();
    assert_eq!(report.outcome, Outcome::Cancelled);
}

#[test]
fn a_program_that_differs_in_the_guest_is_not_run() {
    let fixture = fixture(good());
    let at = CString::new("/bin/sh").unwrap();
    let found =
        |path: &str| ProgramFile::Open { file: File::open(path).unwrap().into(), at: at.clone() };
    let program = found("/etc/passwd");
    let same = fixture.run(RunSpec { program, ..spec("x") }, &CancelToken::new().unwrap()).0;
    assert!(same.is_ok(), "{same:?}");
    let program = found("/etc/group");
    let other = fixture.run(RunSpec { program, ..spec("x") }, &CancelToken::new().unwrap()).0;
    let want = "sandbox: guest: verify program: the guest has another file than the host";
    assert_eq!(other.unwrap_err().to_string(), want);
}

#[test]
fn a_run_that_a_guest_cannot_have_is_refused_before_boot() {
    let fixture = fixture(good());
    let copied = StdinSource::Copied(File::open("/dev/null").unwrap().into());
    let limits = Limits { memory_bytes_max: 1 << 40, ..Limits::default() };
    for (want, spec) in [
        (
            "microvm: a descriptor cannot be passed to a guest",
            RunSpec { stdin: copied, ..spec("x") },
        ),
        (
            "memory of the machine: 1048769 MiB needed, but a machine gets at most 8192",
            RunSpec { limits, ..spec("x") },
        ),
    ] {
        let failure = fixture.run(spec, &CancelToken::new().unwrap()).0.unwrap_err();
        assert_eq!(failure.to_string(), format!("sandbox: {want}"));
    }
    assert_eq!(fixture.booted.load(Ordering::Relaxed), 0);
}

#[test]
fn capabilities_are_probed_by_booting_and_cached() {
    let able = fixture(good());
    assert_eq!(able.vms.describe(), Ok(capabilities()));
    assert_eq!(able.vms.describe(), Ok(capabilities()));
    assert_eq!(able.booted.load(Ordering::Relaxed), 1);
    let dead = fixture(Arc::new(|connection, _| drop(connection)));
    let reason = Unavailable("sandbox: guest: it sent no hello".to_owned());
    assert_eq!(dead.vms.describe(), Err(reason));
}

#[test]
fn leftovers_are_swept_and_a_live_services_directory_is_not_shared() {
    let first = fixture(good());
    let left = first.work.path().join("vm-0123");
    fs::create_dir_all(left.join("in/deep")).unwrap();
    fs::write(first.work.path().join("not ours"), "").unwrap();
    first.vms.describe().unwrap();
    assert!(!left.exists() && first.work.path().join("not ours").exists());
    let settings = Settings::new(first.work.path().to_owned(), PathBuf::from("/"));
    let threads = Threads { guest: good(), booted: Arc::default() };
    let second = MicroVms::new(settings, threads);
    let refused = second.describe().unwrap_err();
    assert_eq!(refused.0, "sandbox: work directory: another process has it");
}

#[test]
fn output_goes_to_a_sink_when_it_has_room() {
    #[derive(Debug, Default)]
    struct Slow {
        taken: Arc<Mutex<Vec<u8>>>,
        asked: AtomicUsize,
    }
    impl OutputSink for Slow {
        fn take(&mut self, _: Stream, bytes: &[u8]) {
            self.taken.lock().unwrap().extend_from_slice(bytes);
        }
        fn is_only_reader(&self) -> bool {
            true
        }
        fn has_room(&self) -> bool {
            !self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
        }
    }
    let fixture = fixture(good());
    let slow = Slow::default();
    let taken = Arc::clone(&slow.taken);
    let mut spec = spec("x");
    spec.limits.wall = Duration::from_secs(5);
    let input = RunInput {
        spec,
        retained: Default::default(),
        workspace: WorkspaceInput::Filled {
            room: Room::default(),
            fill: &mut |place: BorrowedFd<'_>, _| {
                let path =
                    format!("/proc/self/fd/{}/in.txt", std::os::fd::AsRawFd::as_raw_fd(&place));
                fs::write(path, "from the host").unwrap();
                Ok(())
            },
            collect: &mut |_: BorrowedFd<'_>| {},
        },
    };
    let watch = Watch::of(CancelToken::new().unwrap());
    let report = fixture.vms.execute(input, &watch, Some(Box::new(slow))).unwrap();
    assert_eq!(report.outcome, Outcome::Exited { code: 3 });
    assert_eq!((report.stdout.bytes.len(), report.stdout.bytes_total), (0, 13));
    assert_eq!(*taken.lock().unwrap(), b"from the hostto the program");
}
