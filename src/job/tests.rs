//! Workspaces that change while a job is judged, and workspaces that contain the store.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tempfile::{TempDir, tempdir};

use super::Runner;
use crate::executor::{Capabilities, Executor, FoundProgram, RunInput, Unavailable};
use cofferdam_core::job::{JobStatus, RunJobResult, parse_request};
use cofferdam_core::{Enforced, NotStarted, OutputSink, RunReport, SetupFailure, Watch};
use cofferdam_tree::Owner;

/// A backend that runs nothing. It calls `change` when it is asked for the program, which is after
/// the workspace was opened, and records which files the copy holds.
struct CopyExecutor {
    change: Box<dyn Fn() + Send + Sync>,
    copied: Mutex<Vec<String>>,
}

impl std::fmt::Debug for CopyExecutor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CopyExecutor")
    }
}

impl Executor for CopyExecutor {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities { enforced: Enforced::default(), not_enforced: Vec::new() })
    }

    fn find_program(&self, _: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        (self.change)();
        let file = tempfile::tempfile().unwrap().into();
        Ok(Some(FoundProgram { path: "/bin/true".into(), target: "/bin/true".into(), file }))
    }

    fn execute(
        &self,
        mut input: RunInput<'_>,
        _: &Watch,
        _: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let target = tempdir().unwrap();
        let owner = Owner { uid: 0, gid: 0 };
        input.fill(fs::File::open(target.path()).unwrap().as_fd(), owner)?;
        let mut names: Vec<_> = fs::read_dir(target.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        *self.copied.lock().unwrap() = names;
        Err(SetupFailure::from_words("test", "nothing runs here").into())
    }
}

/// A directory with `roots/`, `outside/` and `store/`.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        let place = tempdir().unwrap();
        for name in ["roots/good", "outside", "store"] {
            fs::create_dir_all(place.path().join(name)).unwrap();
        }
        fs::write(place.path().join("roots/good/inside"), "").unwrap();
        fs::write(place.path().join("outside/secret"), "").unwrap();
        Self(place)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a job over `path`. Returns its result and the names of the copied files. `change` is
    /// called while the job is judged.
    fn run(
        &self,
        path: &Path,
        roots: Option<PathBuf>,
        change: impl Fn() + Send + Sync + 'static,
    ) -> (RunJobResult, Vec<String>) {
        let backend = Arc::new(CopyExecutor { change: Box::new(change), copied: Mutex::default() });
        let mut builder = Runner::builder(self.at("store")).local(backend.clone());
        builder = match roots {
            Some(roots) => builder.roots([roots]),
            None => builder,
        };
        let request = json!({
            "workspace": {"source": "local_path", "path": path},
            "command": {"argv": ["true"]},
            "policy": {"allowed_commands": ["true"]},
        });
        let request = parse_request(request.to_string().as_bytes()).unwrap();
        let result = builder.build().unwrap().run(request).unwrap();
        let copied = backend.copied.lock().unwrap().clone();
        (result, copied)
    }
}

/// Makes `link` point to `target`, atomically.
fn point(link: &Path, target: &Path) {
    let new = link.with_extension("new");
    symlink(target, &new).unwrap();
    fs::rename(new, link).unwrap();
}

#[test]
fn the_judged_directory_is_copied_even_if_its_link_changes() {
    let scene = Scene::new();
    let link = scene.at("roots/link");
    point(&link, &scene.at("roots/good"));
    let (moved, outside) = (link.clone(), scene.at("outside"));
    let roots = || Some(scene.at("roots"));
    let (result, copied) = scene.run(&link, roots(), move || point(&moved, &outside));
    assert_eq!((result.status, copied), (JobStatus::SetupFailed, vec!["inside".to_owned()]));

    // The link points outside, and inside while the job is judged.
    let (moved, good) = (link.clone(), scene.at("roots/good"));
    let (result, copied) = scene.run(&link, roots(), move || point(&moved, &good));
    assert_eq!((result.status, copied), (JobStatus::PolicyDenied, vec![]));
}

#[test]
fn a_directory_that_appears_while_the_job_is_judged_is_not_copied() {
    let scene = Scene::new();
    let link = scene.at("roots/late");
    let (made, outside) = (link.clone(), scene.at("outside"));
    let (result, copied) =
        scene.run(&link, Some(scene.at("roots")), move || point(&made, &outside));
    assert_eq!((result.status, copied), (JobStatus::SetupFailed, vec![]));
    let error = result.error.unwrap();
    assert!(error.message.contains("ENOENT"), "{error}");
}

#[test]
fn a_workspace_in_the_store_is_denied() {
    let scene = Scene::new();
    symlink(scene.at("store"), scene.at("roots/link")).unwrap();
    let other = scene.run(&scene.at("roots/good"), None, || {}).0.job_id;
    let record = format!("store/runs/{other}");
    assert!(scene.at(&record).join("request.json").exists());
    for name in ["store", "store/runs", &record, "roots/link", "roots/link/runs", "store/runs/."] {
        let (result, copied) = scene.run(&scene.at(name), None, || {});
        assert_eq!(result.status, JobStatus::PolicyDenied, "{name}");
        assert_eq!(result.error.unwrap().code.word(), "policy.workspace_denied");
        assert_eq!(copied, Vec::<String>::new());
    }
    // A workspace that contains the store is copied without it.
    let (_, copied) = scene.run(scene.0.path(), None, || {});
    assert_eq!(copied, ["outside", "roots"]);
}
