//! One job at a time, from its request to its record: what the library offers, and what the
//! service's workers do.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::control::Control;
use super::ending::Ending;
use super::programs::{Digests, OpenedPrograms};
use super::record::{Facts, Times};
use super::run::Run;
use super::workspace::OpenedWorkspace;
use crate::executor::{Capabilities, Executor};
use crate::policy::{self, ApprovedCommand, PolicyConfig, PolicyOutcome, WorkspaceFacts};
use crate::store;
use crate::store::{JobRecord, Recovered, RunStore, StoreError, StoreSettings};
use cofferdam_core::job::{
    BackendKind, ControlName, ErrorCode, Idempotency, JobError, JobId, JobLimits, JobStatus,
    RunJobRequest, RunJobResult,
};
use cofferdam_core::sync::retained::Retained;
use cofferdam_tree::WorkspaceError;

/// How long to wait before each further attempt to record a result.
const RETRY_AFTER: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

/// What a runner works with.
#[derive(Debug, Clone)]
pub struct RunnerSettings {
    /// Where records are kept; made where it is not there.
    pub store_dir: PathBuf,
    /// How long, and how much of them.
    pub store: StoreSettings,
    /// What is allowed beside what a request allows itself.
    pub policy: PolicyConfig,
    /// The most a request may ask for.
    pub maxima: JobLimits,
    /// The backend `local_process`.
    pub local: Arc<dyn Executor>,
    /// The backend `firecracker`, where there is one.
    pub firecracker: Option<Arc<dyn Executor>>,
}

/// Runs jobs, each on the thread that asks for it.
#[derive(Debug)]
pub struct Runner {
    store: RunStore,
    settings: RunnerSettings,
    digests: Digests,
}

/// A job that has a record and has not been run.
#[derive(Debug)]
pub struct AcceptedJob {
    /// What is to be done.
    pub request: RunJobRequest,
    record: JobRecord,
    queued_at: SystemTime,
}

/// A job that is over.
#[derive(Debug)]
pub struct EndedJob {
    /// What came of it.
    pub result: RunJobResult,
    /// Where that is not in the store.
    pub unstored: Option<Unstored>,
}

/// A record whose last state could not be written.
#[derive(Debug)]
pub struct Unstored {
    /// Why not.
    pub error: StoreError,
    /// What can be asked to write it again.
    pub record: JobRecord,
}

impl AcceptedJob {
    /// Its name.
    pub fn id(&self) -> &JobId {
        self.record.id()
    }

    /// When it was taken.
    pub fn queued_at(&self) -> SystemTime {
        self.queued_at
    }

    /// Takes it back: nothing of it stays.
    pub fn discard(self) {
        self.record.discard();
    }
}

impl Runner {
    /// The runner of a service, which has its store to itself as [`RunStore::open`] says; also
    /// says what became of jobs that an earlier one left.
    ///
    /// # Errors
    /// A store that another service has, or that cannot be made, read or written.
    pub fn open(settings: RunnerSettings) -> Result<(Self, Recovered), StoreError> {
        let (store, recovered) = RunStore::open(&settings.store_dir, settings.store)?;
        Ok((Self { store, settings, digests: Digests::default() }, recovered))
    }

    /// A runner that may share its store with others and with a service, as
    /// [`RunStore::open_shared`] says.
    ///
    /// # Errors
    /// A store that cannot be made or written.
    pub fn open_shared(settings: RunnerSettings) -> Result<Self, StoreError> {
        let store = RunStore::open_shared(&settings.store_dir, settings.store)?;
        Ok(Self { store, settings, digests: Digests::default() })
    }

    /// Its records.
    pub fn store(&self) -> &RunStore {
        &self.store
    }

    /// Runs one job to its end on this thread. Whatever becomes of a job that was taken is in its
    /// result; nothing that a program does is an error here.
    ///
    /// # Errors
    /// A request that is none, or whose name is taken; it leaves nothing behind.
    pub fn run(&self, request: RunJobRequest) -> Result<RunJobResult, JobError> {
        let control = Control::new().map_err(|error| cannot("eventfd", &error))?;
        self.run_controlled(request, &control)
    }

    /// As [`Runner::run`], for a caller who may want the job's end and to know how far it is.
    ///
    /// A result that the store does not take after a few seconds of attempts is returned all the
    /// same, and says so in `not_recorded`.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_controlled(
        &self,
        request: RunJobRequest,
        control: &Control,
    ) -> Result<RunJobResult, JobError> {
        self.check(&request)?;
        let job = self.accept(request, None).map_err(told)?;
        Ok(stored(self.perform(job, control, &Retained::default())))
    }

    /// Holds a request to what it has to be before anything is made for it.
    pub fn check(&self, request: &RunJobRequest) -> Result<(), JobError> {
        request.check()?;
        request.check_maxima(&self.settings.maxima)
    }

    /// Makes the record of a job that was checked.
    pub fn accept(
        &self,
        mut request: RunJobRequest,
        idempotency: Option<Idempotency>,
    ) -> Result<AcceptedJob, StoreError> {
        let id = request.job_id.get_or_insert_with(JobId::random).clone();
        let queued_at = SystemTime::now();
        let record = self.store.create_named(&id, &request, queued_at, idempotency)?;
        Ok(AcceptedJob { request, record, queued_at })
    }

    /// Brings a job to its end and its record to its last state. What is `retained` stays taken
    /// until its box is dead, which may be later.
    pub fn perform(&self, job: AcceptedJob, control: &Control, retained: &Retained) -> EndedJob {
        let began = (SystemTime::now(), Instant::now());
        control.enter(JobStatus::Running);
        self.conclude(job, Some(began), |job, facts, judging| {
            job.record.decided(facts.decision.clone(), facts.executable.clone());
            match job.record.started(began.0) {
                Err(error) => Ending::without_run(JobStatus::Failed, told(error)),
                Ok(()) => self.steps(job, facts, judging, control, retained),
            }
        })
    }

    /// Ends a job that nothing was done for.
    pub fn end_unrun(&self, job: AcceptedJob, ending: Ending) -> EndedJob {
        self.conclude(job, None, |_, _, _| ending)
    }

    fn conclude(
        &self,
        mut job: AcceptedJob,
        began: Option<(SystemTime, Instant)>,
        end: impl FnOnce(&mut AcceptedJob, &mut Facts, Judging<'_>) -> Ending,
    ) -> EndedJob {
        let backend = self.backend(job.request.backend.kind);
        // Where there is no backend of that kind, the policy is told of this host's programs.
        let executor = backend.unwrap_or(&*self.settings.local);
        let programs = OpenedPrograms::new(executor, &self.digests);
        let workspace =
            OpenedWorkspace::open(&job.request.workspace.path, &self.settings.store_dir);
        let known = workspace.as_ref().map_or(WorkspaceFacts::default(), OpenedWorkspace::facts);
        let outcome = policy::evaluate(&job.request, &self.settings.policy, known, &programs);
        let PolicyOutcome { decision, error, command } = outcome;
        let mut facts = Facts::of(decision);
        let ending = match error {
            // Somebody's wish for its end does not make it allowed.
            Some(error) if error.code == ErrorCode::BackendSetupFailed => {
                Ending::without_run(JobStatus::SetupFailed, error)
            }
            Some(error) => Ending::without_run(JobStatus::PolicyDenied, error),
            None => {
                let judging = Judging { backend, programs: &programs, command, workspace };
                end(&mut job, &mut facts, judging)
            }
        };
        let AcceptedJob { request, mut record, queued_at } = job;
        let id = record.id().clone();
        let mut result = facts.into_result(id, &request, ending, Times { queued_at, began });
        store::fit(&mut result, request.limits.record_bytes);
        let unstored = record.finish(&result).err().map(|error| Unstored { error, record });
        EndedJob { result, unstored }
    }

    fn backend(&self, kind: BackendKind) -> Option<&dyn Executor> {
        match kind {
            BackendKind::LocalProcess => Some(&*self.settings.local),
            BackendKind::Firecracker => self.settings.firecracker.as_deref(),
        }
    }

    /// What the policy has allowed, step by step.
    fn steps(
        &self,
        job: &AcceptedJob,
        facts: &mut Facts,
        judging: Judging<'_>,
        control: &Control,
        retained: &Retained,
    ) -> Ending {
        let Judging { backend, programs, command, workspace } = judging;
        if let Some(ending) = control.asked() {
            return ending;
        }
        let kind = job.request.backend.kind;
        let executor = match available(backend, kind, &job.request.policy.require_enforced) {
            Ok((executor, capabilities)) => {
                facts.runs_on(capabilities);
                executor
            }
            Err(error) => return Ending::without_run(JobStatus::BackendUnavailable, error),
        };
        let Some(command) = command else {
            let error = JobError::new(ErrorCode::CommandDenied, "no command was judged");
            return Ending::without_run(JobStatus::PolicyDenied, error);
        };
        let run = Run {
            executor,
            programs,
            request: &job.request,
            record: &job.record,
            store: &self.store,
            workspace: workspace.as_ref(),
            retained,
        };
        run.to_its_end(&command, facts, control)
    }
}

/// The result of a job that is over, after a few more attempts to record it where that is needed.
fn stored(EndedJob { mut result, unstored }: EndedJob) -> RunJobResult {
    let Some(Unstored { mut error, mut record }) = unstored else { return result };
    for wait in RETRY_AFTER {
        if !error.may_pass() {
            break;
        }
        thread::sleep(wait);
        match record.finish(&result) {
            Ok(()) => return result,
            Err(again) => error = again,
        }
    }
    log::error!(job = result.job_id.as_str(), reason = error.to_string(); "job's result not recorded");
    result.not_recorded.push(format!("all of it: {}", JobError::from(error).message));
    result
}

/// What the steps after the policy go on with.
#[derive(Debug)]
struct Judging<'a> {
    backend: Option<&'a dyn Executor>,
    programs: &'a OpenedPrograms<'a>,
    command: Option<ApprovedCommand>,
    workspace: Result<OpenedWorkspace, WorkspaceError>,
}

/// The backend, where it can run what is asked for as it is asked for.
fn available<'a>(
    backend: Option<&'a dyn Executor>,
    kind: BackendKind,
    required: &[ControlName],
) -> Result<(&'a dyn Executor, Capabilities), JobError> {
    let unavailable = |reason: String| {
        let words = format!("{}: {reason}", kind.word());
        JobError::new(ErrorCode::BackendUnavailable, words).with("backend", kind.word())
    };
    let executor = backend.ok_or_else(|| unavailable("not configured here".to_owned()))?;
    let capabilities = executor.describe().map_err(|why| unavailable(why.to_string()))?;
    match required.iter().find(|control| !is_enforced(&capabilities, **control)) {
        None => Ok((executor, capabilities)),
        Some(missing) => {
            let words = format!("{} is required and not enforced here", missing.word());
            Err(unavailable(words).with("control", missing.word()))
        }
    }
}

fn is_enforced(capabilities: &Capabilities, control: ControlName) -> bool {
    let enforced = &capabilities.enforced;
    match control {
        ControlName::Namespaces => !enforced.namespaces.is_empty(),
        ControlName::Seccomp => enforced.seccomp.is_some(),
        ControlName::Memory => enforced.memory.is_some(),
        ControlName::Processes => enforced.processes.is_some(),
        ControlName::Disk => enforced.disk.is_some(),
        ControlName::Cpu => enforced.cpu.is_some(),
        ControlName::Network => enforced.namespaces.contains(&"net"),
    }
}

/// What a client is told of a failure of the store, which is logged with its path.
pub fn told(error: StoreError) -> JobError {
    let reason = error.to_string();
    let told = JobError::from(error);
    if told.code == ErrorCode::IoFailed {
        log::error!(reason; "the store failed");
    }
    told
}

/// A failure of ours before a job was taken.
pub fn cannot(step: &str, error: &std::io::Error) -> JobError {
    JobError::new(ErrorCode::IoFailed, format!("{step}: {error}"))
}
