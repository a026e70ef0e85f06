//! Runs a job that the policy allows: prepare, execute, collect, finish.

mod limits;
pub(super) mod output;
pub(super) mod programs;
pub(super) mod result;
pub(super) mod tree;
pub(super) mod workspace;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag};
use serde::Serialize;

use super::control::JobControl;
use crate::egress::EgressGrant;
use crate::executor::{Executor, Room, RunInput, WorkspaceInput};
use crate::job::outcome::JobOutcome;
use crate::job::run::limits::{run_limits, snapshot_limits};
use crate::job::run::output::{JobOutput, RecordedStream};
use crate::job::run::programs::{OpenedPrograms, digest_of};
use crate::job::run::result::ResultBuilder;
use crate::job::run::tree::JobTree;
use crate::job::run::workspace::OpenedWorkspace;
use crate::policy::{ApprovedCommand, CommandLocation};
use crate::store::{JobRecord, RunStore, snapshot_hash};
use cofferdam_core::job::{
    Artifact, ErrorCode, Executable, JobError, JobLimits, JobStatus, OmittedArtifact,
    RunJobRequest, Sha256, SnapshotSummary, StreamRecord,
};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{
    NotStarted, ProgramFile, RunReport, RunSpec, SetupFailure, StdinSource, Stream, Watch,
};
use cofferdam_tree::{
    ArtifactLimits, ArtifactRules, Owner, SnapshotLimits, SnapshotRules, SourceDir, StopCheck,
    WorkspaceError, collect_artifacts, open_scoped, survey, take_snapshot,
};

/// How long the survey and the copy of a workspace may take together.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(600);
/// Where the workspace is in a sandbox.
const WORKSPACE: &str = "/workspace";

/// Why a sandbox that was killed and did not die has no artifacts.
const NOT_DEAD: &str = "processes of the job are not dead";

/// A job to run, and what it is run with.
#[derive(Debug, Clone)]
pub struct JobRun<'a> {
    /// Where it runs.
    pub executor: &'a dyn Executor,
    /// The open programs that the policy has judged.
    pub programs: &'a OpenedPrograms<'a>,
    /// The request.
    pub request: &'a RunJobRequest,
    /// The job's record, for writing.
    pub record: &'a JobRecord,
    /// The store of the record, for reading.
    pub store: &'a RunStore,
    /// The directory to copy, or why it cannot be opened.
    pub workspace: Result<&'a OpenedWorkspace, &'a WorkspaceError>,
    /// Held until the sandbox is dead.
    pub retained: &'a Retained,
    /// What the program may reach, if anything.
    pub egress: Option<EgressGrant>,
    /// What the program works on in place of the workspace, if anything.
    pub tree: Option<JobTree<'a>>,
}

/// The contents of `snapshot.json`.
#[derive(Debug, Serialize)]
struct SnapshotRecord<'a> {
    #[serde(flatten)]
    summary: &'a SnapshotSummary,
    hash: &'a str,
}

/// A job whose workspace has been surveyed and whose program has been found.
#[derive(Debug)]
struct PreparedJob<'a> {
    workspace: &'a OpenedWorkspace,
    spec: RunSpec,
    room: Room,
    rules: SnapshotRules,
    limits: SnapshotLimits,
    output: JobOutput,
}

/// What happened to a workspace during a run.
#[derive(Debug, Default)]
struct RunTrace {
    snapshot: Option<WorkspaceCopy>,
    snapshot_failure: Option<JobOutcome>,
    /// Set once every process of the run is dead.
    collected: Option<Collected>,
}

/// The copy of a workspace.
#[derive(Debug)]
struct WorkspaceCopy {
    summary: SnapshotSummary,
    digest: String,
    /// The program, if the workspace holds it.
    executable: Option<Executable>,
}

/// What a program left in its workspace.
#[derive(Debug, Default)]
struct Collected {
    artifacts: Vec<Artifact>,
    omitted: Vec<OmittedArtifact>,
    omitted_beyond: u64,
    failure: Option<JobError>,
}

impl JobRun<'_> {
    /// Runs the job, records what happened in `builder`, and returns how the job ended.
    pub fn run(
        self,
        command: &ApprovedCommand,
        builder: &mut ResultBuilder,
        control: &JobControl,
    ) -> JobOutcome {
        let deadline = Deadline::after(SNAPSHOT_WITHIN);
        let is_over = || control.is_asked() || deadline.passed();
        let stop = StopCheck(&is_over);
        let prepared = match self.prepare(command, builder, control, stop) {
            Ok(prepared) => prepared,
            Err(outcome) => return outcome,
        };
        let output = prepared.output.clone();
        let (report, trace) = self.execute(prepared, command, control, stop);
        builder.egress = self.egress.as_ref().map(EgressGrant::records).unwrap_or_default();
        self.finish(report, trace, &output, builder, control)
    }

    /// Finds the program, surveys the workspace and opens the output files.
    fn prepare(
        &self,
        command: &ApprovedCommand,
        builder: &mut ResultBuilder,
        control: &JobControl,
        stop: StopCheck<'_>,
    ) -> Result<PreparedJob<'_>, JobOutcome> {
        let program = self.program_file(command, builder)?;
        let workspace = self.workspace.map_err(snapshot_failed)?;
        self.check_cwd(workspace)?;
        let rules = self.snapshot_rules(workspace)?;
        let limits = snapshot_limits(&self.request.limits);
        let surveyed = match self.tree {
            Some(tree) => tree.survey(&limits, stop),
            None => survey(workspace.source(), &rules, &limits, stop),
        };
        let room =
            surveyed.map_err(|error| control.asked().unwrap_or_else(|| snapshot_failed(&error)))?;
        let room = Room { bytes: room.room_bytes, inodes: room.room_inodes };
        let output = self.output(control)?;
        let spec = self.spec(program)?;
        Ok(PreparedJob { workspace, spec, room, rules, limits, output })
    }

    /// Copies the workspace, runs the program and collects the artifacts.
    fn execute(
        &self,
        prepared: PreparedJob<'_>,
        command: &ApprovedCommand,
        control: &JobControl,
        stop: StopCheck<'_>,
    ) -> (Result<RunReport, NotStarted>, RunTrace) {
        let PreparedJob { workspace, spec, room, rules, limits, output } = prepared;
        let RunTrace { mut snapshot, mut snapshot_failure, mut collected } = RunTrace::default();
        let mut fill = |target: BorrowedFd<'_>, owner: Owner| {
            let source = (workspace.source(), &rules, &limits);
            match self.snapshot((target, owner), source, stop, command) {
                Ok(taken) => snapshot = Some(taken),
                Err(outcome) => {
                    snapshot_failure = Some(outcome);
                    return Err(SetupFailure::from_words("snapshot", "not copied"));
                }
            }
            Ok(())
        };
        let mut collect = |workspace: BorrowedFd<'_>| {
            collected = Some(self.collect(workspace));
            if let Some(tree) = self.tree {
                (tree.take)(workspace);
            }
        };
        let workspace = WorkspaceInput::Filled { room, fill: &mut fill, collect: &mut collect };
        let input = RunInput { spec, workspace, retained: self.retained.clone() };
        let watch = Watch::of(control.token());
        let report = self.executor.execute(input, &watch, Some(output.sink()));
        (report, RunTrace { snapshot, snapshot_failure, collected })
    }

    /// Records what happened, and returns how the job ended.
    fn finish(
        &self,
        report: Result<RunReport, NotStarted>,
        trace: RunTrace,
        output: &JobOutput,
        builder: &mut ResultBuilder,
        control: &JobControl,
    ) -> JobOutcome {
        let RunTrace { snapshot, snapshot_failure, collected } = trace;
        if let Some(WorkspaceCopy { summary, digest, executable }) = snapshot {
            builder.snapshot = Some((summary, digest));
            builder.executable = executable.or(builder.executable.take());
        }
        let report = match report {
            Ok(report) => report,
            Err(why) => {
                let outcome = control.asked().or(snapshot_failure);
                return outcome.unwrap_or_else(|| JobOutcome::not_started(why, self.argv0()));
            }
        };
        let output_failure = self.record_output(output, builder);
        let collected = collected.unwrap_or_else(|| self.not_collected());
        (builder.artifacts, builder.omitted) = (collected.artifacts, collected.omitted);
        builder.omitted_beyond = collected.omitted_beyond;
        builder.ran(&report.enforced, report.not_enforced, &report.usage);
        let outcome = match JobOutcome::of_run(report.outcome) {
            canceled if canceled.status == JobStatus::Canceled => {
                control.asked().unwrap_or(canceled)
            }
            outcome => outcome,
        };
        outcome.with_failure(output_failure.or(collected.failure))
    }

    /// The result of a job whose processes are still alive: a failure, if it asks for artifacts.
    fn not_collected(&self) -> Collected {
        let wanted = !self.request.policy.artifacts.include.is_empty();
        let failure = wanted.then(|| JobError::new(ErrorCode::ArtifactCollectionFailed, NOT_DEAD));
        Collected { failure, ..Collected::default() }
    }

    fn argv0(&self) -> &str {
        self.request.command.argv.first().map_or("", String::as_str)
    }

    /// The file to execute: the one that the policy has judged.
    fn program_file(
        &self,
        command: &ApprovedCommand,
        builder: &mut ResultBuilder,
    ) -> Result<ProgramFile, JobOutcome> {
        let argv0 = self.argv0();
        let missing = || JobOutcome::spawn_failed(argv0, "ENOENT", "no such program");
        if let CommandLocation::Workspace(path) = &command.location {
            return Ok(ProgramFile::At(c_string("argv", &format!("{WORKSPACE}/{path}"))?));
        }
        let program = command.program.as_ref().ok_or_else(missing)?;
        builder.executable =
            Some(Executable { path: program.target.clone(), sha256: program.sha256.clone() });
        if command.pinned.is_empty() {
            return Ok(ProgramFile::At(c_string("argv", &program.path)?));
        }
        let file = File::from(self.programs.take(&program.path).ok_or_else(missing)?);
        // Hashed again through the descriptor that is executed.
        let digest = digest_of(&file).map_err(|error| {
            JobOutcome::spawn_failed(argv0, "EIO", &format!("cannot be read: {error}"))
        })?;
        check_pins(argv0, &command.pinned, &digest)?;
        Ok(ProgramFile::Open { file: file.into(), at: c_string("argv", &program.target)? })
    }

    /// The rules of the request. A store inside the workspace is excluded.
    fn snapshot_rules(&self, workspace: &OpenedWorkspace) -> Result<SnapshotRules, JobOutcome> {
        let asked = &self.request.workspace;
        let rules = SnapshotRules::parse(&asked.include, &asked.exclude).map_err(|bad| {
            let error = JobError::new(ErrorCode::InvalidRequest, bad.to_string());
            JobOutcome::without_run(JobStatus::SetupFailed, error)
        })?;
        Ok(rules.without(workspace.excluded()))
    }

    /// Refuses a working directory that leaves the workspace through a link. A missing one is
    /// reported later, when the sandbox cannot enter it.
    fn check_cwd(&self, workspace: &OpenedWorkspace) -> Result<(), JobOutcome> {
        let cwd = self.request.command.cwd.as_str();
        // O_PATH opens any kind of file; opening a fifo for reading would block.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        match open_scoped(workspace.source(), cwd, how) {
            Err(Errno::EXDEV) => {
                let error = JobError::new(
                    ErrorCode::PathEscape,
                    "command.cwd: a link leads out of the workspace",
                );
                let error = error.with("path", "command.cwd");
                Err(JobOutcome::without_run(JobStatus::SetupFailed, error))
            }
            _ => Ok(()),
        }
    }

    fn output(&self, control: &JobControl) -> Result<JobOutput, JobOutcome> {
        let JobLimits { stdout_bytes, stderr_bytes, .. } = self.request.limits;
        let failed = |error: io::Error| {
            let error = JobError::new(ErrorCode::IoFailed, format!("open output: {error}"));
            JobOutcome::without_run(JobStatus::Failed, error)
        };
        let stdout = self.record.stdout().map_err(failed)?;
        let stderr = self.record.stderr().map_err(failed)?;
        let progress = control.progress().clone();
        Ok(JobOutput::new((stdout, stdout_bytes), (stderr, stderr_bytes), progress))
    }

    /// Copies the workspace, and finds the program in it if the policy allows one there.
    fn snapshot(
        &self,
        (target, owner): (BorrowedFd<'_>, Owner),
        (source, rules, limits): (&SourceDir, &SnapshotRules, &SnapshotLimits),
        stop: StopCheck<'_>,
        command: &ApprovedCommand,
    ) -> Result<WorkspaceCopy, JobOutcome> {
        let taken = match self.tree {
            Some(tree) => tree.copy((target, owner), limits, stop),
            None => take_snapshot(source, rules, limits, stop, (target, owner)),
        };
        let taken = taken.map_err(|error| snapshot_failed(&error))?;
        let summary =
            SnapshotSummary { files: taken.files, bytes: taken.bytes, excluded: taken.excluded };
        let hash = snapshot_hash(&taken.digest);
        let record = SnapshotRecord { summary: &summary, hash: &hash };
        self.record
            .write_snapshot(&record)
            .map_err(|error| JobOutcome::without_run(JobStatus::Failed, error.logged()))?;
        let executable = match &command.location {
            CommandLocation::Root => None,
            CommandLocation::Workspace(path) => {
                Some(self.workspace_program(target, path, command)?)
            }
        };
        Ok(WorkspaceCopy { summary, digest: taken.digest, executable })
    }

    /// The file in the copy that is executed. No process that could change it runs before it.
    fn workspace_program(
        &self,
        workspace: BorrowedFd<'_>,
        path: &RelPath,
        command: &ApprovedCommand,
    ) -> Result<Executable, JobOutcome> {
        let argv0 = self.argv0();
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = open_scoped(workspace, path.as_path(), how).map_err(|errno| {
            JobOutcome::spawn_failed(argv0, &format!("{errno:?}"), errno.desc())
        })?;
        let digest = digest_of(&File::from(file)).map_err(|error| {
            JobOutcome::spawn_failed(argv0, "EIO", &format!("cannot be read: {error}"))
        })?;
        check_pins(argv0, &command.pinned, &digest)?;
        Ok(Executable { path: format!("{WORKSPACE}/{path}"), sha256: digest })
    }

    fn spec(&self, program: ProgramFile) -> Result<RunSpec, JobOutcome> {
        let command = &self.request.command;
        let argv = command.argv.iter().map(|word| c_string("argv", word));
        let mut env = self.egress.as_ref().map(EgressGrant::environment).unwrap_or_default();
        // A variable of the request counts: it reaches nothing more.
        env.extend(command.env.clone());
        let env = env.iter().map(|(key, value)| c_string("env", &format!("{key}={value}")));
        let workdir = match command.cwd.as_str() {
            "." => WORKSPACE.into(),
            cwd => Path::new(WORKSPACE).join(cwd),
        };
        Ok(RunSpec {
            argv: argv.collect::<Result<_, _>>()?,
            program,
            env: env.collect::<Result<_, _>>()?,
            workdir,
            stdin: match command.stdin.as_bytes() {
                [] => StdinSource::Null,
                bytes => StdinSource::Bytes(bytes.to_vec()),
            },
            limits: run_limits(&self.request.limits),
            egress: self.egress.as_ref().map(EgressGrant::service),
            ..RunSpec::default()
        })
    }

    /// Records both outputs. Returns an error if one could not be stored whole.
    fn record_output(&self, output: &JobOutput, builder: &mut ResultBuilder) -> Option<JobError> {
        let (stdout, stderr) = output.end();
        let mut failure = None;
        for (ended, stream, record) in [
            (stdout, Stream::Stdout, &mut builder.stdout),
            (stderr, Stream::Stderr, &mut builder.stderr),
        ] {
            match self.stream_record(stream, ended) {
                Ok(stored) => *record = stored,
                Err(error) => failure = Some(JobError::new(ErrorCode::IoFailed, error.to_string())),
            }
        }
        failure
    }

    fn stream_record(&self, stream: Stream, ended: RecordedStream) -> io::Result<StreamRecord> {
        let RecordedStream { kept, total, sha256, broken } = ended;
        let mut bytes = Vec::new();
        let file = self.store.open_stream(self.record.id(), stream);
        let file = file.map_err(|error| io::Error::other(error.logged()))?;
        file.take(kept).read_to_end(&mut bytes)?;
        match broken {
            Some(error) => Err(error),
            None => Ok(StreamRecord::of(bytes, total, sha256)),
        }
    }

    fn collect(&self, workspace: BorrowedFd<'_>) -> Collected {
        let patterns = &self.request.policy.artifacts;
        if patterns.include.is_empty() {
            return Collected::default();
        }
        self.try_collect(workspace).unwrap_or_else(|reason| {
            let failure = Some(JobError::new(ErrorCode::ArtifactCollectionFailed, reason));
            Collected { failure, ..Collected::default() }
        })
    }

    fn try_collect(&self, workspace: BorrowedFd<'_>) -> Result<Collected, String> {
        let (patterns, limits) = (&self.request.policy.artifacts, &self.request.limits);
        let limits = ArtifactLimits {
            count_max: limits.artifact_count,
            file_bytes_max: limits.artifact_file_bytes,
            total_bytes_max: limits.artifact_total_bytes,
        };
        let rules = ArtifactRules::parse(&patterns.include, &patterns.deny)
            .map_err(|bad| bad.to_string())?;
        let into = self.record.artifacts().map_err(|error| error.logged().message)?;
        let collected = collect_artifacts(workspace, &rules, &limits, into.as_fd())
            .map_err(|error| error.to_string())?;
        let omitted = collected.omitted.into_iter();
        let artifacts = collected.kept.into_iter().filter_map(|kept| {
            Some(Artifact {
                uri: self.record.artifact_uri(&kept.path),
                path: kept.path.as_str().to_owned(),
                bytes: kept.bytes,
                sha256: Sha256::parse(&kept.sha256)?,
                truncated: kept.truncated,
            })
        });
        Ok(Collected {
            artifacts: artifacts.collect(),
            omitted: omitted.map(|(path, reason)| OmittedArtifact { path, reason }).collect(),
            omitted_beyond: collected.omitted_beyond,
            failure: None,
        })
    }
}

/// Checks a file against the pinned digests, if there are any.
fn check_pins(argv0: &str, pinned: &[Sha256], found: &Sha256) -> Result<(), JobOutcome> {
    let Some(expected) = pinned.first() else { return Ok(()) };
    if pinned.contains(found) {
        return Ok(());
    }
    let error = JobError::new(ErrorCode::CommandDenied, "the program is not the one pinned");
    let error = error.with("argv0", argv0).with("expected", expected.as_str());
    let error = error.with("actual", found.as_str());
    Err(JobOutcome::without_run(JobStatus::PolicyDenied, error))
}

/// The outcome of a workspace that could not be copied.
fn snapshot_failed(error: &WorkspaceError) -> JobOutcome {
    let failure = JobError::new(ErrorCode::BackendSetupFailed, format!("snapshot: {error}"));
    let failure = failure.with("step", "snapshot");
    let failure = match error {
        WorkspaceError::TooLarge { source, .. } => failure.with("limit", source.to_string()),
        _ => failure,
    };
    JobOutcome::without_run(JobStatus::SetupFailed, failure)
}

fn c_string(what: &str, text: &str) -> Result<CString, JobOutcome> {
    CString::new(text).map_err(|_| {
        let error = JobError::new(ErrorCode::InvalidRequest, format!("command.{what}: a NUL"));
        JobOutcome::without_run(JobStatus::SetupFailed, error)
    })
}
