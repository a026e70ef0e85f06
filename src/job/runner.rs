//! Runs one job from its request to its record: for the library, and for a service's workers.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::control::JobControl;
use super::outcome::JobOutcome;
use super::run::JobRun;
use super::run::programs::{Digests, OpenedPrograms};
use super::run::result::{ResultBuilder, Times};
use super::run::tree::JobTree;
use super::run::workspace::OpenedWorkspace;
use crate::egress::rules::{NetworkDenial, NetworkRules, WithheldValues};
use crate::egress::secret::{Placeholders, ServiceSecrets};
use crate::egress::{EgressGrant, EgressTerms};
use crate::executor::{Capabilities, Executor};
use crate::policy::{self, ApprovedCommand, PolicyConfig, PolicyOutcome, WorkspaceFacts};
use crate::store;
use crate::store::{JobRecord, Recovered, RunStore, StoreError, StoreSettings};
use cofferdam_core::job::{
    BackendKind, ControlName, ErrorCode, Idempotency, JobError, JobId, JobLimits, JobStatus,
    Network, RunJobRequest, RunJobResult, ValidRequest,
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

/// The settings of a runner.
#[derive(Debug, Clone)]
pub struct RunnerSettings {
    /// The directory of the records; created if missing.
    pub store_dir: PathBuf,
    /// How long records are kept, and how much of them.
    pub store: StoreSettings,
    /// What the operator allows in addition to the policy of a request.
    pub policy: PolicyConfig,
    /// How what a program may reach is served.
    pub egress: EgressTerms,
    /// The highest limits that a request may ask for.
    pub maxima: JobLimits,
    /// The backend `local_process`.
    pub local: Arc<dyn Executor>,
    /// The backend `firecracker`, if configured.
    pub firecracker: Option<Arc<dyn Executor>>,
}

/// Runs jobs, each on the calling thread.
#[derive(Debug)]
pub struct Runner {
    store: RunStore,
    settings: RunnerSettings,
    digests: Digests,
}

/// A valid request with every limit within the maxima of a runner, and entries that are hosts.
#[derive(Debug)]
pub struct ValidJob(ValidRequest);

/// A job that has a record and has not run.
#[derive(Debug)]
pub struct AcceptedJob {
    request: ValidRequest,
    record: JobRecord,
    queued_at: SystemTime,
}

/// A job that has ended.
#[derive(Debug)]
pub struct EndedJob {
    /// Its result.
    pub result: RunJobResult,
    /// Set if the store does not have the result.
    pub unstored: Option<Unstored>,
}

/// A record whose last state could not be written.
#[derive(Debug)]
pub struct Unstored {
    /// The failure.
    pub error: StoreError,
    /// The record, for another attempt.
    pub record: JobRecord,
}

/// What the policy has allowed, and what it was asked about.
#[derive(Debug)]
struct PolicyContext<'a> {
    backend: Option<&'a dyn Executor>,
    programs: &'a OpenedPrograms<'a>,
    command: Option<ApprovedCommand>,
    workspace: Result<OpenedWorkspace, WorkspaceError>,
    egress: Option<EgressGrant>,
    tree: Option<JobTree<'a>>,
}

impl ValidJob {
    /// Checks the limits of `request` against `maxima`, and its network with the service's `secrets`.
    ///
    /// # Errors
    /// The first limit above its maximum, or the first wrong field of the network.
    pub fn new(
        request: ValidRequest,
        maxima: &JobLimits,
        secrets: &ServiceSecrets,
    ) -> Result<Self, JobError> {
        request.check_maxima(maxima)?;
        check_network(&request, secrets)?;
        Ok(Self(request))
    }
}

impl AcceptedJob {
    /// The job's id.
    pub fn id(&self) -> &JobId {
        self.record.id()
    }

    /// When the job was accepted.
    pub fn queued_at(&self) -> SystemTime {
        self.queued_at
    }

    /// Removes the job and its record.
    pub fn discard(self) {
        self.record.discard();
    }
}

impl Runner {
    /// Opens the runner of a service, which is the only service of its store, as
    /// [`RunStore::open`] says. Also returns what became of the jobs of earlier services.
    ///
    /// # Errors
    /// The store belongs to another service, or cannot be created, read or written.
    pub fn open(settings: RunnerSettings) -> Result<(Self, Recovered), StoreError> {
        let (store, recovered) = RunStore::open(&settings.store_dir, settings.store)?;
        Ok((Self { store, settings, digests: Digests::default() }, recovered))
    }

    /// Opens a runner that can share its store with other processes and a service, as
    /// [`RunStore::open_shared`] says.
    ///
    /// # Errors
    /// The store cannot be created or written.
    pub fn open_shared(settings: RunnerSettings) -> Result<Self, StoreError> {
        let store = RunStore::open_shared(&settings.store_dir, settings.store)?;
        Ok(Self { store, settings, digests: Digests::default() })
    }

    /// The records.
    pub fn store(&self) -> &RunStore {
        &self.store
    }

    /// Runs one job to its end on this thread. Everything that happens to an accepted job is in
    /// its result: what a program does is never an error here.
    ///
    /// # Errors
    /// A limit is above this runner's maximum, or a job with the request's id exists. Nothing is
    /// recorded then.
    pub fn run(&self, request: ValidRequest) -> Result<RunJobResult, JobError> {
        let control = JobControl::new().map_err(|error| cannot("eventfd", &error))?;
        self.run_with(request, &control)
    }

    /// As [`Runner::run`], with a `control` by which another thread cancels or follows the job.
    ///
    /// If the store does not take the result after a few seconds of attempts, the result is
    /// returned with a note in `not_recorded`.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_with(
        &self,
        request: ValidRequest,
        control: &JobControl,
    ) -> Result<RunJobResult, JobError> {
        self.run_job(self.valid(request)?, control)
    }

    /// As [`Runner::run_with`], for a job whose limits have been checked against this runner's
    /// maxima.
    ///
    /// # Errors
    /// A job with its id exists. Nothing is recorded then.
    pub(crate) fn run_job(
        &self,
        job: ValidJob,
        control: &JobControl,
    ) -> Result<RunJobResult, JobError> {
        let job = self.accept(job, None).map_err(StoreError::logged)?;
        Ok(stored(self.run_accepted(job, control, &Retained::default())))
    }

    /// As [`Runner::run_with`], over all of `tree` in place of the workspace of the request.
    pub(crate) fn run_over(
        &self,
        request: ValidRequest,
        control: &JobControl,
        tree: JobTree<'_>,
    ) -> Result<RunJobResult, JobError> {
        let job = self.accept(self.valid(request)?, None).map_err(StoreError::logged)?;
        Ok(stored(self.run_in(job, control, &Retained::default(), Some(tree))))
    }

    /// The highest limits that a request may ask for.
    pub fn maxima(&self) -> &JobLimits {
        &self.settings.maxima
    }

    /// Checks `request` as [`ValidJob::new`] does, with the maxima and secrets of this runner.
    ///
    /// # Errors
    /// As [`ValidJob::new`].
    pub fn valid(&self, request: ValidRequest) -> Result<ValidJob, JobError> {
        ValidJob::new(request, self.maxima(), self.settings.egress.service.secrets())
    }

    /// Creates the record of a job.
    pub fn accept(
        &self,
        ValidJob(mut request): ValidJob,
        idempotency: Option<Idempotency>,
    ) -> Result<AcceptedJob, StoreError> {
        let id = request.id_or_generate();
        let queued_at = SystemTime::now();
        let record = self.store.create_named(&id, &request, queued_at, idempotency)?;
        Ok(AcceptedJob { request, record, queued_at })
    }

    /// Runs an accepted job and records its result. `retained` is held until its sandbox is dead,
    /// which may be later.
    pub fn run_accepted(
        &self,
        job: AcceptedJob,
        control: &JobControl,
        retained: &Retained,
    ) -> EndedJob {
        self.run_in(job, control, retained, None)
    }

    fn run_in(
        &self,
        mut job: AcceptedJob,
        control: &JobControl,
        retained: &Retained,
        tree: Option<JobTree<'_>>,
    ) -> EndedJob {
        let began = (SystemTime::now(), Instant::now());
        control.enter(JobStatus::Running);
        let programs = self.programs(&job);
        let (mut builder, allowed) = self.evaluate_policy(&job, &programs, tree);
        let outcome = allowed.and_then(|context| {
            job.record.decided(builder.decision.clone(), builder.executable.clone());
            job.record
                .started(began.0)
                .map_err(|error| JobOutcome::without_run(JobStatus::Failed, error.logged()))?;
            self.run_allowed(&job, &mut builder, context, control, retained)
        });
        let outcome = outcome.unwrap_or_else(|outcome| outcome);
        finish(job, builder, outcome, Some(began))
    }

    /// Ends a job that has not run.
    pub fn end_unrun(&self, job: AcceptedJob, outcome: JobOutcome) -> EndedJob {
        let programs = self.programs(&job);
        let (builder, allowed) = self.evaluate_policy(&job, &programs, None);
        // A denial counts, even if the job was canceled.
        let outcome = allowed.err().unwrap_or(outcome);
        finish(job, builder, outcome, None)
    }

    /// What the program of `job` may reach, if anything.
    fn egress_of(&self, job: &AcceptedJob) -> Result<Option<EgressGrant>, JobError> {
        let Network::Allow(network) = &job.request.policy.network else { return Ok(None) };
        // All but which secrets the client may use was checked already.
        let (terms, placeholders) = (&self.settings.egress, Placeholders::new_for(network));
        let token = job.request.token();
        let read = terms.network(network, token, &placeholders, WithheldValues::Refused);
        let network = read.map_err(|denial| {
            let mut error = JobError::new(ErrorCode::SecretDenied, denial.to_string());
            if let NetworkDenial::SecretDenied { name } = denial {
                error = error.with("name", name);
            }
            error
        })?;
        Ok(Some(terms.grant(network, terms.log(), None)))
    }

    fn backend(&self, kind: BackendKind) -> Option<&dyn Executor> {
        match kind {
            BackendKind::LocalProcess => Some(&*self.settings.local),
            BackendKind::Firecracker => self.settings.firecracker.as_deref(),
        }
    }

    /// The programs that the policy of `job` is evaluated with: those of its backend, or of this
    /// host if the backend is missing.
    fn programs(&self, job: &AcceptedJob) -> OpenedPrograms<'_> {
        let backend = self.backend(job.request.backend.kind);
        OpenedPrograms::new(backend.unwrap_or(&*self.settings.local), &self.digests)
    }

    /// Opens the workspace and evaluates the policy of `job`. Returns the outcome of a denied job
    /// as an error.
    fn evaluate_policy<'a>(
        &'a self,
        job: &AcceptedJob,
        programs: &'a OpenedPrograms<'a>,
        tree: Option<JobTree<'a>>,
    ) -> (ResultBuilder, Result<PolicyContext<'a>, JobOutcome>) {
        let (path, store_dir) = (&job.request.workspace.path, &self.settings.store_dir);
        let workspace = match tree {
            Some(tree) => OpenedWorkspace::of_open(tree.directory, path, store_dir),
            None => OpenedWorkspace::open(path, store_dir),
        };
        let known = workspace.as_ref().map_or(WorkspaceFacts::default(), OpenedWorkspace::facts);
        let judged = policy::evaluate(&job.request, &self.settings.policy, known, programs);
        let PolicyOutcome { mut decision, error, command } = judged;
        let allowed = match error {
            Some(error) => Err(error),
            None => self.egress_of(job).inspect_err(|denial| decision.deny(denial.code)),
        };
        let allowed = allowed
            .map(|egress| {
                let backend = self.backend(job.request.backend.kind);
                PolicyContext { backend, programs, command, workspace, egress, tree }
            })
            .map_err(|error| {
                let status = match error.code {
                    ErrorCode::BackendSetupFailed => JobStatus::SetupFailed,
                    _ => JobStatus::PolicyDenied,
                };
                JobOutcome::without_run(status, error)
            });
        (ResultBuilder::new(decision), allowed)
    }

    /// Runs a job that the policy allows. An error is an outcome before the program ran.
    fn run_allowed(
        &self,
        job: &AcceptedJob,
        builder: &mut ResultBuilder,
        context: PolicyContext<'_>,
        control: &JobControl,
        retained: &Retained,
    ) -> Result<JobOutcome, JobOutcome> {
        let PolicyContext { backend, programs, command, workspace, egress, tree } = context;
        if let Some(outcome) = control.asked() {
            return Err(outcome);
        }
        let (executor, capabilities) = available(backend, &job.request)
            .map_err(|error| JobOutcome::without_run(JobStatus::BackendUnavailable, error))?;
        builder.runs_on(capabilities);
        let command = command.ok_or_else(|| {
            let error = JobError::new(ErrorCode::CommandDenied, "no command was judged");
            JobOutcome::without_run(JobStatus::PolicyDenied, error)
        })?;
        let run = JobRun {
            executor,
            programs,
            request: &job.request,
            record: &job.record,
            store: &self.store,
            workspace: workspace.as_ref(),
            retained,
            egress,
            tree,
        };
        Ok(run.run(&command, builder, control))
    }
}

/// Checks the fields of `policy.network`, and that its rules send the service's `secrets` to the hosts of these alone.
///
/// # Errors
/// The first wrong one.
pub fn check_network(request: &ValidRequest, secrets: &ServiceSecrets) -> Result<(), JobError> {
    let Network::Allow(network) = &request.policy.network else { return Ok(()) };
    let invalid = |field: &str, words: &str| {
        let path = format!("policy.network.{field}");
        JobError::new(ErrorCode::InvalidRequest, format!("{path}: {words}")).with("path", path)
    };
    NetworkRules::check_for(network, secrets, request.token())
        .map_err(|fault| invalid(&fault.path, &fault.words))?;
    match network.secret_env.keys().find(|name| request.command.env.contains_key(*name)) {
        Some(name) => Err(invalid(&format!("secret_env.{name}"), "is in command.env too")),
        None => Ok(()),
    }
}

/// Builds the result of a job and records it.
fn finish(
    job: AcceptedJob,
    builder: ResultBuilder,
    outcome: JobOutcome,
    began: Option<(SystemTime, Instant)>,
) -> EndedJob {
    let AcceptedJob { request, mut record, queued_at } = job;
    let id = record.id().clone();
    let mut result = builder.build(id, &request, outcome, Times { queued_at, began });
    store::truncate(&mut result, request.limits.record_bytes);
    let unstored = record.finish(&result).err().map(|error| Unstored { error, record });
    EndedJob { result, unstored }
}

/// The result of a job that has ended, after more attempts to record it if needed.
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

/// Returns the backend of `request` if it enforces every required control, and has the network.
fn available<'a>(
    backend: Option<&'a dyn Executor>,
    request: &RunJobRequest,
) -> Result<(&'a dyn Executor, Capabilities), JobError> {
    let (kind, required) = (request.backend.kind, &request.policy.require_enforced);
    let unavailable = |reason: String| {
        let words = format!("{}: {reason}", kind.word());
        JobError::new(ErrorCode::BackendUnavailable, words).with("backend", kind.word())
    };
    let executor = backend.ok_or_else(|| unavailable("not configured here".to_owned()))?;
    let capabilities = executor.describe().map_err(|why| unavailable(why.to_string()))?;
    if kind == BackendKind::Firecracker && matches!(request.policy.network, Network::Allow(_)) {
        let words = "a virtual machine has no network".to_owned();
        return Err(unavailable(words).with("control", "network"));
    }
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

/// The error of a step of ours before a job was accepted.
pub fn cannot(step: &str, error: &std::io::Error) -> JobError {
    JobError::new(ErrorCode::IoFailed, format!("{step}: {error}"))
}
