//! The backend: each run in a machine of its own.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use super::job_files::{JobFiles, bounds, sweep};
use super::line::{Called, Line};
use super::machine::{Hypervisor, Machine, MachinePlan};
use super::programs::{Programs, identify};
use super::talk::{Asked, Heard, Silent, talk};
use super::wire::{Run, WireProgram, all_to_base64, to_base64};
use cofferdam_core::executor::{Capabilities, Executor, FoundProgram, RunInput, Unavailable};
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    CapturedStream, LimitKind, NotStarted, Outcome, OutputSink, ProgramFile, RunReport, RunSpec,
    SetupFailure, StdinSource, Timings, Usage, Watch, WorkspaceFill,
};

const MIB: u64 = 1 << 20;
/// The most standard input that goes to a guest, bytes.
const STDIN_BYTES_MAX: u64 = 64 * MIB;

/// What machines are given, and how long they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where each job has its files while it runs: a directory for nobody else, mode 0700.
    pub work_directory: PathBuf,
    /// A directory with the same content as the guest's root file system.
    pub root_directory: PathBuf,
    /// Virtual processors of a machine.
    pub vcpus: u8,
    /// Memory of a machine beside what its job may use: kernel, first program, workspace, MiB.
    pub own_memory_mib: u64,
    /// The most memory a machine gets, MiB; a job that needs more is refused.
    pub memory_mib_max: u64,
    /// From a machine's start to its first word.
    pub boot_wait: Duration,
    /// What a guest may take beyond its program's time: to unpack, pack and report.
    pub answer_wait: Duration,
    /// From a cancel to the machine's death.
    pub cancel_wait: Duration,
    /// How long an answer of [`Executor::describe`] holds.
    pub probe_holds: Duration,
}

impl Settings {
    /// The usual figures.
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

/// Runs jobs in virtual machines, each in a box in one of its own.
#[derive(Debug)]
pub struct MicroVms<H> {
    settings: Settings,
    hypervisor: H,
    programs: Programs,
    probed: Mutex<Option<(Instant, Result<Capabilities, Unavailable>)>>,
    swept: Mutex<Option<Flock<std::fs::File>>>,
}

impl<H: Hypervisor> MicroVms<H> {
    /// A backend whose machines `hypervisor` makes.
    pub fn new(settings: Settings, hypervisor: H) -> Self {
        let programs = Programs::below(settings.root_directory.clone());
        Self { settings, hypervisor, programs, probed: Mutex::default(), swept: Mutex::default() }
    }

    /// Makes the work directory this process's own, and clears it, once.
    fn settle(&self) -> Result<(), SetupFailure> {
        let failed = |error: std::io::Error| SetupFailure::from_io("work directory", &error);
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_none() {
            let directory = &self.settings.work_directory;
            let open = std::fs::File::open(directory).map_err(failed)?;
            // It goes with the process, however that ends.
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
        files: &JobFiles,
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

    /// Boots a machine and asks it what it can do.
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let unavailable = |failure: SetupFailure| Unavailable(failure.to_string());
        let called = (|| {
            self.settle()?;
            let files = JobFiles::make(&self.settings.work_directory)?;
            files.blank()?;
            let (mut machine, boot) = self.boot(&files, self.settings.own_memory_mib)?;
            let called = Line::await_call(machine.as_mut(), boot, None)?;
            machine.end(Duration::ZERO)?;
            Ok(called)
        })();
        match called.map_err(unavailable)? {
            Called::There(_, capabilities) => Ok(capabilities),
            Called::Unable(reason) => Err(reason),
            Called::Cancelled => Err(Unavailable("cancelled".to_owned())),
        }
    }

    /// Memory of the machine for a job with these needs.
    fn memory_mib(&self, input: &RunInput<'_>) -> Result<u64, SetupFailure> {
        let bytes = input.spec.limits.memory_bytes_max.saturating_add(input.room().bytes);
        let wanted = bytes.div_ceil(MIB).saturating_add(self.settings.own_memory_mib);
        let max = self.settings.memory_mib_max;
        if wanted > max {
            let reason = format!("{wanted} MiB are needed, and a machine gets {max} at most");
            return Err(SetupFailure::from_words("memory of the machine", reason));
        }
        Ok(wanted)
    }

    /// The guest's orders, but for the drive's division.
    fn orders(&self, input: &RunInput<'_>) -> Result<Run, SetupFailure> {
        let unfit = |what: &str| Err(SetupFailure::from_words("microvm", what));
        let RunSpec { argv, program, without_shell, env, workdir, stdin, limits, .. } = &input.spec;
        if !input.spec.binds.is_empty() || input.spec.workspace != WorkspaceFill::Own {
            return unfit("nothing of the host can be shown in a guest");
        }
        if without_shell.is_some() {
            return unfit("a plain command is run as it is");
        }
        let stdin_bytes = match stdin {
            StdinSource::Null => None,
            StdinSource::Bytes(bytes) => Some(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            StdinSource::Copied(_) => return unfit("a descriptor does not reach into a guest"),
        };
        if stdin_bytes.is_some_and(|bytes| bytes > STDIN_BYTES_MAX) {
            return unfit("more standard input than goes to a guest");
        }
        let program = match program {
            ProgramFile::Named => WireProgram::Named,
            ProgramFile::At(path) => WireProgram::At(to_base64(path.to_bytes())),
            ProgramFile::Open { file, at } => {
                WireProgram::Verified { path: to_base64(at.to_bytes()), sha256: identify(file)? }
            }
        };
        Ok(Run {
            argv: all_to_base64(argv),
            program,
            env: all_to_base64(env),
            workdir: workdir.clone(),
            stdin_bytes,
            limits: limits.into(),
            tmpfs: input.spec.tmpfs.iter().map(|t| (t.target.clone(), t.bytes_max)).collect(),
            room: (input.room().bytes, input.room().inodes),
            workspace_bytes: 0,
            result: (0, 0),
        })
    }

    fn run(
        &self,
        input: &mut RunInput<'_>,
        watch: &Watch,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        self.settle()?;
        let memory_mib = self.memory_mib(input)?;
        let mut run = self.orders(input)?;
        let files = JobFiles::make(&self.settings.work_directory)?;
        let division = files.fill(input)?;
        (run.workspace_bytes, run.result) = (division.workspace_bytes, division.result);
        let (mut machine, boot) = self.boot(&files, memory_mib)?;
        let called = Line::await_call(machine.as_mut(), boot, Some(&watch.cancel))?;
        let (mut line, capabilities) = match called {
            Called::There(line, capabilities) => (line, capabilities),
            Called::Unable(reason) => {
                return Err(SetupFailure::from_words("guest", reason.to_string()).into());
            }
            Called::Cancelled => {
                machine.end(Duration::ZERO)?;
                input.collect(files.place("out")?.as_fd());
                return Ok(silent_report(
                    Silent::cancelled_before(),
                    Capabilities::default(),
                    began,
                ));
            }
        };
        let limits = &input.spec.limits;
        let stdin = match &input.spec.stdin {
            StdinSource::Bytes(bytes) => bytes.as_slice(),
            StdinSource::Null | StdinSource::Copied(_) => &[],
        };
        let prepare = began.elapsed();
        let asked = Asked {
            run,
            stdin,
            output_bytes_max: limits.output_bytes_max,
            over: Deadline::after(limits.wall.saturating_add(self.settings.answer_wait)),
            cancel_wait: self.settings.cancel_wait,
        };
        let heard = talk(&mut line, asked, watch, sink);
        // Nothing is left to say, and nothing more is waited for: what it wrote it has synced.
        machine.end(Duration::ZERO)?;
        match heard? {
            Heard::Refused(why) => Err(why),
            Heard::Report(mut report) => {
                let left = files.collected(division, bounds(input))?;
                input.collect(left.as_fd());
                report.timings.prepare += prepare;
                Ok(*report)
            }
            Heard::Silent(silent) => {
                input.collect(files.place("out")?.as_fd());
                Ok(silent_report(silent, capabilities, began))
            }
        }
    }
}

impl<H: Hypervisor> Executor for MicroVms<H> {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        // Held meanwhile: whoever asks at the same time waits for the same answer.
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
        mut input: RunInput<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        self.run(&mut input, watch, &mut sink)
    }
}

impl Silent {
    fn cancelled_before() -> Self {
        let (stdout, stderr) = (Vec::new(), Vec::new());
        Self { cancelled: true, stdout, stderr, received: [0; 2], took: Duration::ZERO }
    }
}

/// What can be said of a run whose machine was killed before it reported.
fn silent_report(silent: Silent, capabilities: Capabilities, began: Instant) -> RunReport {
    let Silent { cancelled, stdout, stderr, received, took } = silent;
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
