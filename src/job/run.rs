//! The steps of a job that the policy allows: snapshot, run, artifacts.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use serde::Serialize;

use super::control::Control;
use super::ending::Ending;
use super::output::{EndedStream, JobOutput};
use super::programs::{OpenedPrograms, digest_of};
use super::record::Facts;
use super::runner::told;
use super::workspace::OpenedWorkspace;
use crate::executor::{Executor, Room, Task};
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
    Limits, NotStarted, ProgramFile, RunReport, RunSpec, SetupFailure, StdinSource, Stream, Watch,
    WorkspaceFill,
};
use cofferdam_tree::{
    ArtifactLimits, ArtifactRules, Owner, SnapshotLimits, SnapshotRules, StopCheck, WorkspaceError,
    collect_artifacts, survey, take_snapshot,
};

/// How long the copy of a workspace may take, both times that it is walked together.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(600);
/// Where the workspace is in a box.
const WORKSPACE: &str = "/workspace";

/// Why there are no artifacts of a box that was killed and did not die.
const NOT_DEAD: &str = "processes of the job are not dead";

/// One job's run, and what it works with.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Where it runs.
    pub executor: &'a dyn Executor,
    /// The programs the policy was told of, open.
    pub programs: &'a OpenedPrograms<'a>,
    /// What is asked for.
    pub request: &'a RunJobRequest,
    /// Where it is written down.
    pub record: &'a JobRecord,
    /// Where that can be read.
    pub store: &'a RunStore,
    /// What is copied, or why that cannot be opened.
    pub workspace: Result<&'a OpenedWorkspace, &'a WorkspaceError>,
    /// What stays taken until the box is dead.
    pub retained: &'a Retained,
}

/// What `snapshot.json` holds.
#[derive(Debug, Serialize)]
struct SnapshotRecord<'a> {
    #[serde(flatten)]
    summary: &'a SnapshotSummary,
    hash: &'a str,
}

/// All that a backend is given.
struct Work<'a> {
    spec: RunSpec,
    room: Room,
    rules: SnapshotRules,
    limits: SnapshotLimits,
    until: StopCheck<'a>,
    command: &'a ApprovedCommand,
    workspace: &'a OpenedWorkspace,
}

/// What was learnt while a workspace was filled and emptied.
#[derive(Debug, Default)]
struct Seen {
    filled: Option<Filled>,
    unfilled: Option<Ending>,
    left: Left,
}

/// A workspace that was copied.
#[derive(Debug)]
struct Filled {
    snapshot: (SnapshotSummary, String),
    executable: Option<Executable>,
}

/// What a program left.
#[derive(Debug, Default)]
struct Left {
    /// Whether it was looked for, which it is when everything of the program is dead.
    looked: bool,
    artifacts: Vec<Artifact>,
    omitted: Vec<OmittedArtifact>,
    omitted_beyond: u64,
    uncollected: Option<JobError>,
}

impl Run<'_> {
    /// Does it all, notes it in `facts`, and says how it ended.
    pub fn to_its_end(
        self,
        command: &ApprovedCommand,
        facts: &mut Facts,
        control: &Control,
    ) -> Ending {
        match self.attempt(command, facts, control) {
            Ok(ending) | Err(ending) => ending,
        }
    }

    fn attempt(
        self,
        command: &ApprovedCommand,
        facts: &mut Facts,
        control: &Control,
    ) -> Result<Ending, Ending> {
        let argv0 = self.request.command.argv.first().map_or("", String::as_str);
        let program = self.program_file(command, facts, argv0)?;
        let workspace = self.workspace.map_err(unfilled)?;
        self.check_cwd(workspace)?;
        let rules = self.snapshot_rules(workspace)?;
        let limits = snapshot_limits(&self.request.limits);
        let deadline = Deadline::after(SNAPSHOT_WITHIN);
        let is_over = || control.is_asked() || deadline.passed();
        let until = StopCheck(&is_over);
        let surveyed = survey(workspace.source(), &rules, &limits, until);
        let room = surveyed.map_err(|error| control.asked().unwrap_or_else(|| unfilled(&error)))?;
        let room = Room { bytes: room.room_bytes, inodes: room.room_inodes };
        let output = self.output(control)?;
        let spec = self.spec(program)?;
        let work = Work { spec, room, rules, limits, until, command, workspace };
        let (report, seen) = self.execute(work, &output, control);
        let Seen { filled, unfilled, left } = seen;
        if let Some(Filled { snapshot, executable }) = filled {
            facts.snapshot = Some(snapshot);
            facts.executable = executable.or(facts.executable.take());
        }
        let report = report.map_err(|why| {
            let ending = control.asked().or(unfilled);
            ending.unwrap_or_else(|| Ending::not_started(why, argv0))
        })?;
        let broken = self.note_output(&output, facts);
        let Left { looked, artifacts, omitted, omitted_beyond, uncollected } = left;
        let uncollected = match looked || self.request.policy.artifacts.include.is_empty() {
            true => uncollected,
            false => Some(JobError::new(ErrorCode::ArtifactCollectionFailed, NOT_DEAD)),
        };
        (facts.artifacts, facts.omitted) = (artifacts, omitted);
        facts.omitted_beyond = omitted_beyond;
        facts.ran(&report.enforced, report.not_enforced, &report.usage);
        let ending = match Ending::of_run(report.outcome) {
            canceled if canceled.status == JobStatus::Canceled => {
                control.asked().unwrap_or(canceled)
            }
            ending => ending,
        };
        Ok(ending.spoilt_by(broken.or(uncollected)))
    }

    /// Fills, runs and empties a workspace, and tells what was seen of it.
    fn execute(
        self,
        work: Work<'_>,
        output: &JobOutput,
        control: &Control,
    ) -> (Result<RunReport, NotStarted>, Seen) {
        let Work { spec, room, rules, limits, until, command, workspace } = work;
        let mut seen = Seen::default();
        let (filled, unfilled, left) = (&mut seen.filled, &mut seen.unfilled, &mut seen.left);
        let mut fill = |target: BorrowedFd<'_>, owner: Owner| {
            let copying = (workspace, &rules, &limits);
            match self.fill((target, owner), copying, until, command) {
                Ok(done) => *filled = Some(done),
                Err(ending) => {
                    *unfilled = Some(ending);
                    return Err(SetupFailure::from_words("snapshot", "not copied"));
                }
            }
            Ok(())
        };
        let mut collect = |workspace: BorrowedFd<'_>| self.collect(workspace, left);
        let retained = self.retained.clone();
        let task = Task { spec, room, retained, fill: &mut fill, collect: &mut collect };
        let watch = Watch { cancel: control.token(), client: None };
        let report = self.executor.execute(task, &watch, Some(output.sink()));
        (report, seen)
    }

    /// Which file is executed: the one the policy was told of.
    fn program_file(
        self,
        command: &ApprovedCommand,
        facts: &mut Facts,
        argv0: &str,
    ) -> Result<ProgramFile, Ending> {
        let missing = || Ending::spawn_failed(argv0, "ENOENT", "no such program");
        if let CommandLocation::Workspace(path) = &command.location {
            return Ok(ProgramFile::At(c_string("argv", &format!("{WORKSPACE}/{path}"))?));
        }
        let program = command.program.as_ref().ok_or_else(missing)?;
        facts.executable =
            Some(Executable { path: program.target.clone(), sha256: program.sha256.clone() });
        if command.pinned.is_empty() {
            return Ok(ProgramFile::At(c_string("argv", &program.path)?));
        }
        let file = File::from(self.programs.take(&program.path).ok_or_else(missing)?);
        // Again, and of this descriptor, which is the one that is executed.
        let digest = digest_of(&file).map_err(|error| {
            Ending::spawn_failed(argv0, "EIO", &format!("cannot be read: {error}"))
        })?;
        held_to_pins(argv0, &command.pinned, &digest)?;
        Ok(ProgramFile::Open { file: file.into(), at: c_string("argv", &program.target)? })
    }

    /// Those of the request; the store, where it lies in the workspace, is no part of it.
    fn snapshot_rules(self, workspace: &OpenedWorkspace) -> Result<SnapshotRules, Ending> {
        let asked = &self.request.workspace;
        let rules = SnapshotRules::parse(&asked.include, &asked.exclude).map_err(|bad| {
            let error = JobError::new(ErrorCode::InvalidRequest, bad.to_string());
            Ending::without_run(JobStatus::SetupFailed, error)
        })?;
        Ok(rules.without(workspace.left_out()))
    }

    /// A working directory that a link takes out of the workspace. What the source lacks is
    /// told when the box cannot enter it.
    fn check_cwd(self, workspace: &OpenedWorkspace) -> Result<(), Ending> {
        let cwd = self.request.command.cwd.as_str();
        // Whatever is there: a fifo would have us wait for a writer.
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        match openat2(workspace.source(), cwd, how) {
            Err(Errno::EXDEV) => {
                let error = JobError::new(
                    ErrorCode::PathEscape,
                    "command.cwd: a link leads out of the workspace",
                );
                let error = error.with("path", "command.cwd");
                Err(Ending::without_run(JobStatus::SetupFailed, error))
            }
            _ => Ok(()),
        }
    }

    fn output(self, control: &Control) -> Result<JobOutput, Ending> {
        let JobLimits { stdout_bytes, stderr_bytes, .. } = self.request.limits;
        let failed = |error: io::Error| {
            let error = JobError::new(ErrorCode::IoFailed, format!("open output: {error}"));
            Ending::without_run(JobStatus::Failed, error)
        };
        let stdout = self.record.stdout().map_err(failed)?;
        let stderr = self.record.stderr().map_err(failed)?;
        let progress = control.progress().clone();
        Ok(JobOutput::new((stdout, stdout_bytes), (stderr, stderr_bytes), progress))
    }

    /// Copies the workspace, and finds the program in it that the policy allows there.
    fn fill(
        self,
        (target, owner): (BorrowedFd<'_>, Owner),
        (workspace, rules, limits): (&OpenedWorkspace, &SnapshotRules, &SnapshotLimits),
        until: StopCheck<'_>,
        command: &ApprovedCommand,
    ) -> Result<Filled, Ending> {
        let source = workspace.source();
        let taken = take_snapshot(source, rules, limits, until, (target, owner))
            .map_err(|error| unfilled(&error))?;
        let summary =
            SnapshotSummary { files: taken.files, bytes: taken.bytes, excluded: taken.excluded };
        let hash = snapshot_hash(&taken.digest);
        let record = SnapshotRecord { summary: &summary, hash: &hash };
        self.record
            .write_snapshot(&record)
            .map_err(|error| Ending::without_run(JobStatus::Failed, told(error)))?;
        let executable = match &command.location {
            CommandLocation::Root => None,
            CommandLocation::Workspace(path) => {
                Some(self.workspace_program(target, path, command)?)
            }
        };
        Ok(Filled { snapshot: (summary, taken.digest), executable })
    }

    /// The file of the copy that is executed: nothing that could change it is alive before it is.
    fn workspace_program(
        self,
        workspace: BorrowedFd<'_>,
        path: &RelPath,
        command: &ApprovedCommand,
    ) -> Result<Executable, Ending> {
        let argv0 = self.request.command.argv.first().map_or("", String::as_str);
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = openat2(workspace, path.as_path(), how)
            .map_err(|errno| Ending::spawn_failed(argv0, &format!("{errno:?}"), errno.desc()))?;
        let digest = digest_of(&File::from(file)).map_err(|error| {
            Ending::spawn_failed(argv0, "EIO", &format!("cannot be read: {error}"))
        })?;
        held_to_pins(argv0, &command.pinned, &digest)?;
        Ok(Executable { path: format!("{WORKSPACE}/{path}"), sha256: digest })
    }

    fn spec(self, program: ProgramFile) -> Result<RunSpec, Ending> {
        let command = &self.request.command;
        let argv = command.argv.iter().map(|word| c_string("argv", word));
        let env = command.env.iter().map(|(key, value)| c_string("env", &format!("{key}={value}")));
        let workdir = match command.cwd.as_str() {
            "." => WORKSPACE.into(),
            cwd => Path::new(WORKSPACE).join(cwd),
        };
        Ok(RunSpec {
            argv: argv.collect::<Result<_, _>>()?,
            program,
            without_shell: None,
            env: env.collect::<Result<_, _>>()?,
            workdir,
            stdin: match command.stdin.as_bytes() {
                [] => StdinSource::Null,
                bytes => StdinSource::Bytes(bytes.to_vec()),
            },
            limits: run_limits(&self.request.limits),
            workspace: WorkspaceFill::Own,
            binds: Vec::new(),
            tmpfs: Vec::new(),
        })
    }

    /// Notes what was written; gives what of it could not be kept.
    fn note_output(self, output: &JobOutput, facts: &mut Facts) -> Option<JobError> {
        let (stdout, stderr) = output.end();
        let mut broken = None;
        for (ended, stream, record) in [
            (stdout, Stream::Stdout, &mut facts.stdout),
            (stderr, Stream::Stderr, &mut facts.stderr),
        ] {
            match self.stream_record(stream, ended) {
                Ok(told) => *record = told,
                Err(error) => broken = Some(JobError::new(ErrorCode::IoFailed, error.to_string())),
            }
        }
        broken
    }

    fn stream_record(self, stream: Stream, ended: EndedStream) -> io::Result<StreamRecord> {
        let EndedStream { kept, total, sha256, broken } = ended;
        let mut bytes = Vec::new();
        let file = self.store.open_stream(self.record.id(), stream);
        let file = file.map_err(|error| io::Error::other(told(error)))?;
        file.take(kept).read_to_end(&mut bytes)?;
        match broken {
            Some(error) => Err(error),
            None => Ok(StreamRecord::of(bytes, total, sha256)),
        }
    }

    fn collect(self, workspace: BorrowedFd<'_>, left: &mut Left) {
        left.looked = true;
        let patterns = &self.request.policy.artifacts;
        if patterns.include.is_empty() {
            return;
        }
        let limits = &self.request.limits;
        let limits = ArtifactLimits {
            count_max: limits.artifact_count,
            file_bytes_max: limits.artifact_file_bytes,
            total_bytes_max: limits.artifact_total_bytes,
        };
        let failed =
            |words: String| Some(JobError::new(ErrorCode::ArtifactCollectionFailed, words));
        let rules = match ArtifactRules::parse(&patterns.include, &patterns.deny) {
            Ok(rules) => rules,
            Err(bad) => return left.uncollected = failed(bad.to_string()),
        };
        let into = match self.record.artifacts() {
            Ok(into) => into,
            Err(error) => return left.uncollected = failed(told(error).message),
        };
        let collected = match collect_artifacts(workspace, &rules, &limits, into.as_fd()) {
            Ok(collected) => collected,
            Err(error) => return left.uncollected = failed(error.to_string()),
        };
        left.omitted_beyond = collected.omitted_beyond;
        let omitted = collected.omitted.into_iter();
        left.omitted = omitted.map(|(path, reason)| OmittedArtifact { path, reason }).collect();
        left.artifacts = collected
            .kept
            .into_iter()
            .filter_map(|kept| {
                Some(Artifact {
                    uri: self.record.artifact_uri(&kept.path),
                    path: kept.path.as_str().to_owned(),
                    bytes: kept.bytes,
                    sha256: Sha256::parse(&kept.sha256)?,
                    truncated: kept.truncated,
                })
            })
            .collect();
    }
}

/// Holds a file to being one of those that were allowed, where only certain ones were.
fn held_to_pins(argv0: &str, pinned: &[Sha256], found: &Sha256) -> Result<(), Ending> {
    let Some(expected) = pinned.first() else { return Ok(()) };
    if pinned.contains(found) {
        return Ok(());
    }
    let error = JobError::new(ErrorCode::CommandDenied, "the program is not the one pinned");
    let error = error.with("argv0", argv0).with("expected", expected.as_str());
    let error = error.with("actual", found.as_str());
    Err(Ending::without_run(JobStatus::PolicyDenied, error))
}

/// A workspace that could not be copied.
fn unfilled(error: &WorkspaceError) -> Ending {
    let told = JobError::new(ErrorCode::BackendSetupFailed, format!("snapshot: {error}"));
    let told = told.with("step", "snapshot");
    let told = match error {
        WorkspaceError::TooLarge { source, .. } => told.with("limit", source.to_string()),
        _ => told,
    };
    Ending::without_run(JobStatus::SetupFailed, told)
}

fn c_string(what: &str, text: &str) -> Result<CString, Ending> {
    CString::new(text).map_err(|_| {
        let error = JobError::new(ErrorCode::InvalidRequest, format!("command.{what}: a NUL"));
        Ending::without_run(JobStatus::SetupFailed, error)
    })
}

fn snapshot_limits(limits: &JobLimits) -> SnapshotLimits {
    SnapshotLimits { files_max: limits.snapshot_files, bytes_max: limits.snapshot_bytes }
}

fn run_limits(limits: &JobLimits) -> Limits {
    let defaults = Limits::default();
    let cpu_time = Duration::from_millis(limits.cpu_time_ms);
    let wall = Duration::from_millis(limits.timeout_ms);
    Limits {
        wall,
        cpu_total_max: Some(cpu_time),
        memory_bytes_max: limits.memory_bytes,
        processes_max: limits.processes,
        disk_bytes_max: limits.disk_bytes,
        file_bytes_max: limits.disk_bytes.max(defaults.file_bytes_max),
        // Beyond what is kept, output is hashed and let go.
        output_bytes_max: None,
        // Of any one process; all of them together are held to the same figure.
        ..defaults.with_wall(cpu_time)
    }
}
