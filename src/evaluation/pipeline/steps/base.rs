//! The steps `cloning_repo` and `installing_deps`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::evaluating::{Evaluating, SteppedValue};
use super::open::OpenTask;
use crate::evaluation::pipeline::ending::EarlyEnd;
use crate::evaluation::repository::{
    Base, BaseRequest, BaseSource, FoundCommit, InstallOutput, MadeBase, RepositoryError,
    RepositoryRoots, RepositorySource, Revision,
};
use crate::evaluation::request::EvaluatedWork;
use crate::evaluation::result::EvaluationStep;
use crate::evaluation::task::{InstallFailure, Task, TaskSource};
use crate::evaluation::trees::EvaluationRoot;
use cofferdam_core::SetupFailure;
use cofferdam_tree::{StopCheck, digest_tree};

/// What was installed.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The repository with what is installed for it.
    pub base: Arc<Base>,
    /// What is installed for the agent.
    pub tools: Option<Arc<Base>>,
}

impl Evaluating<'_> {
    /// Finds the commit, makes the base, and installs what the agent needs.
    ///
    /// # Errors
    /// As [`crate::evaluation::repository::Repositories::base`].
    pub fn install(
        &mut self,
        open: &OpenTask,
        root: &EvaluationRoot,
    ) -> Result<Installed, EarlyEnd> {
        let step = EvaluationStep::CloningRepo;
        let (source, found) = self.step(step, |evaluating| {
            let found = evaluating.find_commit(open, root);
            let (source, found) = found.map_err(|error| EarlyEnd::of_repository(step, &error))?;
            let cached = found.cached;
            Ok(SteppedValue { value: (source, found), cached })
        })?;
        let step = EvaluationStep::InstallingDeps;
        let (base, tools) = self.step(step, |evaluating| {
            let output = evaluating.outputs.of(step, None);
            let kept: Arc<dyn InstallOutput> = Arc::new(output.clone());
            let request = evaluating.base_request(open, root, &source, Some(kept));
            let repositories = &evaluating.parts.repositories;
            let made = repositories.base(&request, &found).and_then(|made| {
                let commands = evaluating.agent_commands();
                if commands.is_empty() {
                    return Ok((made, None));
                }
                let tools = BaseRequest { install: commands, ..request };
                Ok((made, Some(repositories.agent_tools(&tools)?)))
            });
            // The observer is told the rest.
            output.text();
            let (MadeBase { base, cached }, tools) =
                made.map_err(|error| EarlyEnd::of_repository(step, &error))?;
            let cached = cached && tools.as_ref().is_none_or(|tools| tools.cached);
            Ok(SteppedValue { value: (base, tools.map(|tools| tools.base)), cached })
        })?;
        self.result.task.base_commit = Some(base.base_commit.clone());
        if let Some(failure) = &base.install_failure {
            self.result.task.warnings.push(failure.to_string());
        }
        Ok(Installed { base, tools })
    }

    /// The commands that install what the agent needs, if there is an agent.
    fn agent_commands(&self) -> &[String] {
        let request = self.call.request;
        match request.work {
            EvaluatedWork::Agent { .. } => &request.agent_install,
            _ => &[],
        }
    }

    fn find_commit(
        &self,
        open: &OpenTask,
        root: &EvaluationRoot,
    ) -> Result<(BaseSource, FoundCommit), RepositoryError> {
        let source = match files_of(&open.task) {
            Some(path) => files_source(&open.root.join(path), StopCheck(&|| self.is_over()))?,
            None => commit_source(&open.task, &self.settings.repository_roots)?,
        };
        let request = self.base_request(open, root, &source, None);
        let found = self.parts.repositories.find_commit(&request)?;
        Ok((source, found))
    }

    fn base_request<'b>(
        &'b self,
        open: &'b OpenTask,
        root: &'b EvaluationRoot,
        source: &'b BaseSource,
        output: Option<Arc<dyn InstallOutput>>,
    ) -> BaseRequest<'b> {
        BaseRequest {
            owner: self.cache_owner(),
            root,
            source,
            install: &open.task.install,
            goes_on: open.task.on_install_failure == InstallFailure::Continue,
            env: &open.task.env,
            asked: open.task.bounds,
            place: &open.place,
            fresh: self.call.request.fresh,
            cancel: &self.watch.cancel,
            deadline: self.deadline,
            egress: &self.egress,
            output,
        }
    }
}

fn files_of(task: &Task) -> Option<&Path> {
    match &task.source {
        TaskSource::Files(path) => Some(path),
        TaskSource::Url(_) | TaskSource::HostPath(_) => None,
    }
}

/// The commit of the repository that the task names.
fn commit_source(task: &Task, roots: &RepositoryRoots) -> Result<BaseSource, RepositoryError> {
    let text = match &task.source {
        TaskSource::Url(url) => url.clone(),
        TaskSource::HostPath(path) | TaskSource::Files(path) => path.display().to_string(),
    };
    let repository = RepositorySource::parse(&text, roots)
        .map_err(|denied| RepositoryError::UrlDenied { reason: denied.to_string() })?;
    let commit = task.revision.clone().unwrap_or_default();
    let revision = Revision::parse(&commit).ok_or(RepositoryError::CommitNotFound { commit })?;
    Ok(BaseSource::Commit { repository, revision })
}

/// The directory `path` of a task, as the only commit.
fn files_source(path: &Path, stop: StopCheck<'_>) -> Result<BaseSource, SetupFailure> {
    let opened = File::open(path).map(OwnedFd::from);
    let directory = opened.map_err(|error| SetupFailure::from_io("open files", &error))?;
    let digest = digest_tree(directory.as_fd(), None, stop)
        .map_err(|error| SetupFailure::from_words("digest of files", error.to_string()))?;
    Ok(BaseSource::Files { directory, digest: digest.hex() })
}
