//! Cells of this process, by each executor. `/run` is the service's, of the same machine.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cofferdam::case::file::load_case;
use cofferdam::cases::{
    CellBase, CellExecutorKind, CellSettings, CellTrees, ContainerCell, ContainerHost,
    ContainerSettings, ExecRequest, ExecResult, Executor, LocalCell, LocalSettings, SandboxedCell,
};
use cofferdam::executor::SandboxExecutor;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_sandbox::engine::SandboxHost;
use cofferdam_test_server::service::cofferdam;
use cofferdam_test_support::host::config;
use cofferdam_test_support::{Host, host};
use tempfile::{TempDir, tempdir};

use super::engine::{IMAGE, TestEngine};

/// What Cells of this process need.
pub struct Cells {
    // Dropped before the directory, in which its files are.
    engine: Option<TestEngine>,
    // As those of a run, on disk where this machine can.
    trees: CellTrees,
    place: TempDir,
    /// Prepares no sandboxes.
    host: Host,
    /// Prepares the next one, as a run and the service do.
    prepares: Arc<SandboxExecutor>,
}

impl Cells {
    /// None where sandboxes are impossible.
    pub fn open() -> Option<Self> {
        let host = host()?;
        let place = tempdir().unwrap();
        let engine = TestEngine::new(place.path());
        let mut prepares = SandboxExecutor::new(SandboxHost::open(config()).unwrap());
        prepares.prepare_for(8, 2).unwrap();
        let prepares = Arc::new(prepares);
        let images = place.path().join("images");
        fs::create_dir(&images).unwrap();
        let trees = CellTrees::open(Arc::clone(&prepares), Some(&images))
            .or_else(|_| CellTrees::open(Arc::clone(&prepares), None))
            .unwrap();
        Some(Self { engine, trees, place, host, prepares })
    }

    /// A started sandboxed Cell of whose commands the next one finds a prepared sandbox.
    pub fn prepared(&self, source: &Path) -> SandboxedCell {
        let cancel = CancelToken::new().unwrap();
        let settings = CellSettings { source: Some(source.into()), ..CellSettings::default() };
        let cell = SandboxedCell::new(Arc::clone(&self.prepares), settings, cancel);
        cell.start().unwrap();
        cell
    }

    /// A started Cell with the files of `source`; none where there is no podman for a container.
    pub fn started(
        &self,
        kind: CellExecutorKind,
        source: Option<&Path>,
    ) -> Option<Box<dyn Executor>> {
        let cancel = CancelToken::new().unwrap();
        let settings = CellSettings { source: source.map(Into::into), ..CellSettings::default() };
        let cell: Box<dyn Executor> = match kind {
            CellExecutorKind::Sandboxed => {
                Box::new(SandboxedCell::new(self.host.backend(), settings, cancel))
            }
            CellExecutorKind::Local => {
                let base = self.place.path().to_owned();
                let settings = LocalSettings { cell: settings, base, helper: cofferdam() };
                Box::new(LocalCell::new(settings, cancel))
            }
            CellExecutorKind::Container => {
                Box::new(ContainerCell::new(self.container(settings)?, cancel))
            }
        };
        cell.start().unwrap();
        Some(cell)
    }

    /// The files of `source`, frozen.
    pub fn frozen(&self, source: &Path) -> CellBase {
        let settings = CellSettings { source: Some(source.into()), ..CellSettings::default() };
        let cancel = CancelToken::new().unwrap();
        let cell = SandboxedCell::in_trees(self.trees.clone(), settings, cancel);
        cell.start().unwrap();
        cell.freeze().unwrap()
    }

    /// A Cell over `base` that is not started.
    pub fn over(&self, base: &CellBase) -> SandboxedCell {
        let cancel = CancelToken::new().unwrap();
        let executor = Arc::clone(self.trees.executor());
        SandboxedCell::over(base.clone(), executor, CellSettings::default(), cancel)
    }

    /// A new directory with so many files of 1,000 bytes, a hundred to a directory.
    pub fn source(&self, files: usize) -> std::path::PathBuf {
        let source = self.place.path().join(format!("source-{files}"));
        write_files(&source, files);
        source
    }

    fn container(&self, cell: CellSettings) -> Option<ContainerSettings> {
        let engine = self.engine.as_ref()?;
        let text = format!(
            "id: a\ntask: {{prompt: p}}\nmatrix: {{harnesses: [nop], models: [m]}}\n\
             container: {{image: '{IMAGE}'}}\n"
        );
        fs::write(self.place.path().join("case.yaml"), text).unwrap();
        let case = load_case(self.place.path()).unwrap().case;
        let host = ContainerHost {
            base: self.place.path().to_owned(),
            helper: cofferdam(),
            search_path: engine.search_path().into(),
            variables: [].into(),
            caches: None,
        };
        let container = case.container.unwrap();
        Some(ContainerSettings { cell, container, setup_egress: None, stays: false, host })
    }
}

/// Runs `command` with a shell.
pub fn sh(cell: &dyn Executor, command: &str) -> ExecResult {
    cell.run(&ExecRequest::new(["sh", "-c", command])).unwrap()
}

/// Writes so many files of 1,000 bytes to the new directory `place`.
pub fn write_files(place: &Path, files: usize) {
    for file in 0..files {
        let directory = place.join((file / 100).to_string());
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(file.to_string()), [b'x'; 1000]).unwrap();
    }
}
