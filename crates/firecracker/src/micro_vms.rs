//! The backend: each run in its own machine.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use super::machine::{Hypervisor, Machine, MachinePlan};
use super::programs::{GuestPrograms, identify};
use crate::drive::{JobDrive, bounds, sweep};
use crate::session::messages::{RunMessage, WireProgram, all_to_base64, to_base64};
use crate::session::vsock::{BootOutcome, GuestConnection};
use crate::session::{PartialRun, SessionOutcome, SessionRequest, run_session};
use cofferdam_core::executor::{Capabilities, Executor, FoundProgram, RunInput, Unavailable};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    CapturedStream, ExcessOutput, LimitKind, NotStarted, Outcome, OutputSink, ProgramFile,
    RunReport, RunSpec, SetupFailure, StdinSource, Timings, Usage, Watch, WorkspaceFill,
};

const MIB: u64 = 1 << 20;
/// The most standard input of a run, bytes.
const STDIN_BYTES_MAX: u64 = 64 * MIB;

/// The configuration and the time limits of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The directory for the files of running jobs: private, mode 0700.
    pub work_directory: PathBuf,
    /// A directory with the same contents as the guest's root file system.
    pub root_directory: PathBuf,
    /// Virtual processors of a machine.
    pub vcpus: u8,
    /// Memory of a machine in addition to its job's limit, for kernel, init and workspace, MiB.
    pub own_memory_mib: u64,
    /// The most memory of a machine, MiB. A job that needs more is refused.
    pub memory_mib_max: u64,
    /// Time limit from a machine's start to its first message.
    pub boot_wait: Duration,
    /// Time that a guest gets beyond its program's limit, to unpack, pack and report.
    pub answer_wait: Duration,
    /// Time limit from a cancel to the end of the machine.
    pub cancel_wait: Duration,
    /// How long an answer of [`Executor::describe`] is cached.
    pub probe_holds: Duration,
}

impl Settings {
    /// The default settings.
    pub fn new(work_directory: PathBuf, root_directory: PathBuf) -> Self {
        Self {
            work_directory,
            root_directory,
            vcpus: 1,
            own_memory_mib: 192,
            memory_mib_max: 8192,
            boot_wait: Duration::from_secs(20),
            answer_wait: Duration::from_secs(30),
            cancel_wait: Duration::from_millis(800),
            probe_holds: Duration::from_secs(60),
        }
    }
}

/// Runs jobs in virtual machines, each in a sandbox in its own machine.
#[derive(Debug)]
pub struct MicroVms<H> {
    settings: Settings,
    hypervisor: H,
    programs: GuestPrograms,
    probed: Mutex<Option<(Instant, Result<Capabilities, Unavailable>)>>,
    swept: Mutex<Option<Flock<std::fs::File>>>,
}

impl<H: Hypervisor> MicroVms<H> {
    /// Creates a backend whose machines `hypervisor` starts.
    pub fn new(settings: Settings, hypervisor: H) -> Self {
        let programs = GuestPrograms::below(settings.root_directory.clone());
        Self { settings, hypervisor, programs, probed: Mutex::default(), swept: Mutex::default() }
    }

    /// Locks the work directory for this process and clears it, once.
    fn settle(&self) -> Result<(), SetupFailure> {
        let failed = |error: std::io::Error| SetupFailure::from_io("work directory", &error);
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_none() {
            let directory = &self.settings.work_directory;
            let open = std::fs::File::open(directory).map_err(failed)?;
            // The kernel releases it when the process ends.
            let lock = Flock::lock(open, FlockArg::LockExclusiveNonblock).map_err(|_| {
                SetupFailure::from_words("work directory", "another process has it")
            })?;
            sweep(directory).map_err(failed)?;
            *swept = Some(lock);
        }
        Ok(())
    }

    fn boot(
        &self,
        files: &JobDrive,
        memory_mib: u64,
    ) -> Result<(Box<dyn Machine>, Deadline), SetupFailure> {
        let boot = Deadline::after(self.settings.boot_wait);
        let machine = self.hypervisor.boot(&MachinePlan {
            id: files.id(),
            directory: files.directory(),
            scratch: files.scratch(),
            vcpus: self.settings.vcpus,
            memory_mib,
            boot,
        })?;
        Ok((machine, boot))
    }

    /// Boots a machine and reads its capabilities.
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let unavailable = |failure: SetupFailure| Unavailable(failure.to_string());
        let called = (|| {
            self.settle()?;
            let files = JobDrive::make(&self.settings.work_directory)?;
            files.blank()?;
            let (mut machine, boot) = self.boot(&files, self.settings.own_memory_mib)?;
            let called = GuestConnection::await_call(machine.as_mut(), boot, None)?;
            machine.end(Duration::ZERO)?;
            Ok(called)
        })();
        match called.map_err(unavailable)? {
            BootOutcome::Ready(_, capabilities) => Ok(capabilities),
            BootOutcome::Unable(reason) => Err(reason),
            BootOutcome::Cancelled => Err(Unavailable("cancelled".to_owned())),
        }
    }

    /// The memory of the machine for this task, MiB.
    fn memory_mib(&self, task: &RunInput<'_>) -> Result<u64, SetupFailure> {
        let bytes = task.spec.limits.memory_bytes_max.saturating_add(task.room().bytes);
        let wanted = bytes.div_ceil(MIB).saturating_add(self.settings.own_memory_mib);
        let max = self.settings.memory_mib_max;
        if wanted > max {
            let reason = format!("{wanted} MiB needed, but a machine gets at most {max}");
            return Err(SetupFailure::from_words("memory of the machine", reason));
        }
        Ok(wanted)
    }

    /// The message with the run, without the layout of the drive.
    fn orders(&self, task: &RunInput<'_>) -> Result<RunMessage, SetupFailure> {
        let unfit = |what: &str| Err(SetupFailure::from_words("microvm", what));
        let RunSpec { argv, program, without_shell, env, workdir, stdin, limits, .. } = &task.spec;
        if !task.spec.binds.is_empty() || !matches!(task.spec.workspace, WorkspaceFill::Own) {
            return unfit("files of the host cannot be visible in a guest");
        }
        if without_shell.is_some() {
            return unfit("a command without its shell is not supported");
        }
        if task.spec.terminal.is_some() || task.spec.excess_output != ExcessOutput::Kills {
            return unfit("terminals and dropped output are not supported");
        }
        let stdin_bytes = match stdin {
            StdinSource::Null => None,
            StdinSource::Bytes(bytes) => Some(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            StdinSource::Copied(_) | StdinSource::Queue(_) | StdinSource::Given(_) => {
                return unfit("a descriptor cannot be passed to a guest");
            }
        };
        if stdin_bytes.is_some_and(|bytes| bytes > STDIN_BYTES_MAX) {
            return unfit("too much standard input for a guest");
        }
        let program = match program {
            ProgramFile::Named => WireProgram::Named,
            ProgramFile::At(path) => WireProgram::At(to_base64(path.to_bytes())),
            ProgramFile::Open { file, at } => {
                WireProgram::Verified { path: to_base64(at.to_bytes()), sha256: identify(file)? }
            }
        };
        Ok(RunMessage {
            argv: all_to_base64(argv),
            program,
            env: all_to_base64(env),
            workdir: workdir.clone(),
            stdin_bytes,
            limits: limits.into(),
            tmpfs: task.spec.tmpfs.iter().map(|t| (t.target.clone(), t.bytes_max)).collect(),
            room: (task.room().bytes, task.room().inodes),
            workspace_bytes: 0,
            result: (0, 0),
        })
    }

    fn run(
        &self,
        task: &mut RunInput<'_>,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        self.settle()?;
        let memory_mib = self.memory_mib(task)?;
        let mut run = self.orders(task)?;
        let files = JobDrive::make(&self.settings.work_directory)?;
        let division = files.fill(task)?;
        (run.workspace_bytes, run.result) = (division.workspace_bytes, division.result);
        let (mut machine, boot) = self.boot(&files, memory_mib)?;
        let called = GuestConnection::await_call(machine.as_mut(), boot, Some(&watch.cancel))?;
        let (mut connection, capabilities) = match called {
            BootOutcome::Ready(connection, capabilities) => (connection, capabilities),
            BootOutcome::Unable(reason) => {
                return Err(SetupFailure::from_words("guest", reason.to_string()).into());
            }
            BootOutcome::Cancelled => {
                machine.end(Duration::ZERO)?;
                task.collect(files.place("out")?.as_fd());
                return Ok(silent_report(
                    PartialRun::cancelled_before(),
                    Capabilities::default(),
                    began,
                ));
            }
        };
        let limits = &task.spec.limits;
        let stdin = match &task.spec.stdin {
            StdinSource::Bytes(bytes) => bytes.as_slice(),
            StdinSource::Null
            | StdinSource::Copied(_)
            | StdinSource::Queue(_)
            | StdinSource::Given(_) => &[],
        };
        let prepare = began.elapsed();
        let asked = SessionRequest {
            run,
            stdin,
            output_bytes_max: limits.output_bytes_max,
            over: Deadline::after(limits.wall.saturating_add(self.settings.answer_wait)),
            cancel_wait: self.settings.cancel_wait,
        };
        let heard = run_session(&mut connection, asked, watch, sink);
        // The session is over, and the guest has synced the drive.
        machine.end(Duration::ZERO)?;
        match heard? {
            SessionOutcome::Refused(why) => Err(why),
            SessionOutcome::Report(mut report) => {
                let left = files.collected(division, bounds(task))?;
                task.collect(left.as_fd());
                report.timings.prepare += prepare;
                Ok(*report)
            }
            SessionOutcome::Silent(silent) => {
                task.collect(files.place("out")?.as_fd());
                Ok(silent_report(silent, capabilities, began))
            }
        }
    }
}

impl<H: Hypervisor> Executor for MicroVms<H> {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        // Locked during the probe: concurrent callers wait for the same answer.
        let mut probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*probed
            && at.elapsed() < self.settings.probe_holds
        {
            return answer.clone();
        }
        let answer = self.probe();
        *probed = Some((Instant::now(), answer.clone()));
        answer
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        self.programs.find(name)
    }

    fn execute(
        &self,
        mut task: RunInput<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        if task.spec.egress.is_some() {
            let words = "a virtual machine has no network";
            return Err(SetupFailure::from_words("egress socket", words).into());
        }
        self.run(&mut task, watch, &mut sink)
    }
}

/// The report of a run whose machine was killed before it reported.
fn silent_report(silent: PartialRun, capabilities: Capabilities, began: Instant) -> RunReport {
    let PartialRun { cancelled, stdout, stderr, received, took } = silent;
    let [stdout_bytes, stderr_bytes] = received;
    let captured =
        |bytes: Vec<u8>, bytes_total: u64| CapturedStream { bytes, bytes_total, truncated: false };
    let Capabilities { enforced, mut not_enforced } = capabilities;
    not_enforced.push("report: the guest did not answer; its machine was killed".to_owned());
    RunReport {
        outcome: if cancelled {
            Outcome::Cancelled
        } else {
            Outcome::LimitHit { kind: LimitKind::WallTime, code: None }
        },
        stdout: captured(stdout, stdout_bytes),
        stderr: captured(stderr, stderr_bytes),
        usage: Usage {
            wall_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            cpu_ms: 0,
            memory_peak_bytes: 0,
            memory_peak_source: "rusage",
            processes_peak: None,
            oom_kills: None,
            stdout_bytes,
            stderr_bytes,
        },
        enforced,
        not_enforced,
        timings: Timings {
            prepare: began.elapsed().saturating_sub(took),
            run: took,
            cleanup: Duration::ZERO,
        },
        standby: false,
    }
}
