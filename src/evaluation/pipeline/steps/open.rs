//! The step `downloading_task`: the task's archive or directory, read.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::evaluating::{Evaluating, SteppedValue, sandbox_failed};
use crate::evaluation::download::ArchiveRequest;
use crate::evaluation::pipeline::ending::EarlyEnd;
use crate::evaluation::pipeline::staging::StagingDirectory;
use crate::evaluation::request::TaskPlace;
use crate::evaluation::result::{EvaluationStep, TaskFacts};
use crate::evaluation::task::{
    OpenedTask, Task, TaskError, TaskSource, open_archive, open_directory,
};
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::values::digest::Digest;
use cofferdam_core::{SetupFailure, WorkspacePath};
use cofferdam_tree::StopCheck;

const STEP: EvaluationStep = EvaluationStep::DownloadingTask;
/// Where an archive is unpacked, in the staging directory.
const UNPACKED: &str = "unpacked";
/// Bytes read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A task that was opened.
#[derive(Debug)]
pub struct OpenTask {
    /// The task.
    pub task: Task,
    /// The directory of its files.
    pub root: PathBuf,
    /// Where sandboxes see its repository.
    pub place: WorkspacePath,
    /// The files of the service that sandboxes see.
    pub staging: StagingDirectory,
}

impl Evaluating<'_> {
    /// Opens the task.
    ///
    /// # Errors
    /// It cannot be had or read, or has no test.
    pub fn open_task(&mut self) -> Result<OpenTask, EarlyEnd> {
        self.step(STEP, |evaluating| {
            let staging = StagingDirectory::create(
                &evaluating.settings.staging,
                evaluating.watch.cancel.clone(),
            );
            let staging = staging.map_err(sandbox_failed(STEP))?;
            let (opened, cached) = evaluating.open_in(&staging)?;
            let OpenedTask { root, task } = opened.map_err(|error| EarlyEnd::of_task(&error))?;
            let place = evaluating.accept(&task).map_err(|error| EarlyEnd::of_task(&error))?;
            Ok(SteppedValue { value: OpenTask { task, root, place, staging }, cached })
        })
    }

    /// Opens it in a new directory; also returns whether its archive was kept.
    fn open_in(
        &mut self,
        staging: &StagingDirectory,
    ) -> Result<(Result<OpenedTask, TaskError>, bool), EarlyEnd> {
        let into = staging.path().join(UNPACKED);
        fs::create_dir(&into)
            .map_err(|error| cannot("make directory", &error))
            .map_err(sandbox_failed(STEP))?;
        let (file, cached) = match &self.call.request.task {
            TaskPlace::Directory(path) => return Ok((open_directory(path, &into), false)),
            TaskPlace::Archive(path) => (self.local_archive(path)?, false),
            TaskPlace::Url { url, sha256 } => self.fetched_archive(url, sha256.as_deref())?,
        };
        let is_over = || self.is_over();
        let opened = open_archive(file, &into, self.settings.archive, StopCheck(&is_over));
        Ok((opened, cached))
    }

    fn fetched_archive(
        &mut self,
        url: &str,
        sha256: Option<&str>,
    ) -> Result<(File, bool), EarlyEnd> {
        let parsed = WebUrl::parse(url);
        let parsed = parsed.map_err(EarlyEnd::of_wrong_url)?;
        let request = ArchiveRequest {
            owner: self.cache_owner(),
            url: &parsed,
            sha256,
            fresh: self.call.request.fresh,
            cancel: &self.watch.cancel,
            deadline: self.deadline,
        };
        let fetched = self.parts.archives.fetch(&request);
        let fetched = fetched.map_err(|error| EarlyEnd::of_download(&error))?;
        self.result.task.sha256 = Some(fetched.sha256);
        Ok((fetched.file, fetched.cached))
    }

    fn local_archive(&mut self, path: &Path) -> Result<File, EarlyEnd> {
        let unreadable = |error| EarlyEnd::of_task(&TaskError::Host(format!("read task: {error}")));
        let mut file = File::open(path).map_err(unreadable)?;
        let (mut digest, mut piece) = (Digest::default(), vec![0; PIECE_BYTES]);
        while !self.is_over() {
            let read = file.read(&mut piece).map_err(unreadable)?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else { break };
            digest.update(read);
        }
        self.result.task.sha256 = Some(digest.finish());
        File::open(path).map_err(unreadable)
    }

    /// Checks what the service does not do for a task, and notes what is known of it.
    fn accept(&mut self, task: &Task) -> Result<WorkspacePath, TaskError> {
        let facts = &mut self.result.task;
        *facts = TaskFacts {
            repo: match &task.source {
                TaskSource::Url(url) => Some(url.clone()),
                TaskSource::HostPath(path) => Some(path.display().to_string()),
                TaskSource::Files(_) => None,
            },
            base_commit: task.base_commit.clone(),
            language: task.language.clone(),
            warnings: task.warnings.clone(),
            url: facts.url.take(),
            sha256: facts.sha256.take(),
        };
        task.check_tests()?;
        Ok(task.workdir.clone())
    }
}

fn cannot(step: &'static str, error: &std::io::Error) -> SetupFailure {
    SetupFailure::from_io(step, error)
}
