//! The executors, the library and the command line.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use cofferdam::case::file::load_case;
use cofferdam::cases::{
    CellExecutorKind, CellSettings, ContainerCell, ContainerHost, ContainerSettings, ExecRequest,
    Executor, LocalCell, LocalSettings, SandboxedCell, StepLimits,
};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_test_support::{Host, host};

use super::engine::{IMAGE, TestEngine};

/// The executors that have the programs of this host.
pub const WITHOUT_IMAGE: [CellExecutorKind; 2] =
    [CellExecutorKind::Sandboxed, CellExecutorKind::Local];

/// A Case with a source, and the place where the Cells are that are directories of the host.
pub struct Scene {
    // Dropped before its files.
    engine: Option<TestEngine>,
    place: TempDir,
    host: Host,
}

pub fn binary() -> PathBuf {
    env::var_os("COFFERDAM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into()).into()
}

impl Scene {
    /// None where sandboxes are impossible.
    pub fn new() -> Option<Self> {
        let host = host()?;
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("case/src");
        for (path, content, mode) in [
            ("kept.txt", "kept\n", 0o644),
            ("dir/inner", "inner\n", 0o644),
            ("plain", "plain\n", 0o644),
            ("script", "#!/bin/sh\necho \"script $1\"\n", 0o755),
            ("no-interpreter", "#!/no/such/interpreter\n", 0o755),
            (".git/config", "", 0o644),
            ("a.pyc", "", 0o644),
            ("dir/__pycache__/b", "", 0o644),
            (".venv/bin/c", "", 0o644),
            ("dir/node_modules/d/e", "", 0o644),
        ] {
            let path = source.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("dir/inner", source.join("link")).unwrap();
        fs::create_dir(place.path().join("cells")).unwrap();
        let engine = TestEngine::new(place.path());
        Some(Self { engine, place, host })
    }

    /// The executors that this machine can have.
    pub fn executors(&self) -> Vec<CellExecutorKind> {
        let all =
            [CellExecutorKind::Sandboxed, CellExecutorKind::Local, CellExecutorKind::Container];
        let is_there =
            |kind: &CellExecutorKind| *kind != CellExecutorKind::Container || self.engine.is_some();
        all.into_iter().filter(is_there).collect()
    }

    /// podman, if this machine has it.
    pub fn engine(&self) -> Option<&TestEngine> {
        self.engine.as_ref()
    }

    /// The directory of the Case, whose other blocks are `limits`.
    pub fn case(&self, limits: &str) -> PathBuf {
        let directory = self.place.path().join("case");
        let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
        let container = match limits.contains("container:") {
            true => String::new(),
            false => format!("container: {{image: '{IMAGE}'}}\n"),
        };
        let text = format!("{head}source: {{path: src}}\n{container}{limits}\n");
        fs::write(directory.join("case.yaml"), text).unwrap();
        directory
    }

    /// Where the directories of local Cells are.
    pub fn cells(&self) -> PathBuf {
        self.place.path().join("cells")
    }

    /// The directories of Cells that are left. What else a killed process leaves is removed by the next one.
    pub fn left_of_cells(&self) -> Vec<PathBuf> {
        let mut pending = vec![self.cells(), self.store()];
        let mut left = Vec::new();
        while let Some(directory) = pending.pop() {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let directories =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            for path in directories.map(|entry| entry.path()) {
                let name = path.file_name().unwrap().to_string_lossy();
                if name.starts_with("cofferdam-cell-") {
                    left.push(path);
                } else {
                    pending.push(path);
                }
            }
        }
        left
    }

    /// The store of runs.
    pub fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    pub fn source(&self) -> PathBuf {
        self.place.path().join("case/src")
    }

    /// A Cell that is not started.
    pub fn cell(&self, kind: CellExecutorKind, limits: &str) -> Box<dyn Executor> {
        let case = load_case(&self.case(limits)).unwrap().case;
        let limits = StepLimits::of(&case.limits);
        let settings = CellSettings { source: Some(self.source()), limits, case_dir: None };
        self.cell_of(kind, settings, CancelToken::new().unwrap())
    }

    pub fn cell_of(
        &self,
        kind: CellExecutorKind,
        cell: CellSettings,
        cancel: CancelToken,
    ) -> Box<dyn Executor> {
        match kind {
            CellExecutorKind::Local => {
                let settings = LocalSettings { cell, base: self.cells(), helper: binary() };
                Box::new(LocalCell::new(settings, cancel))
            }
            CellExecutorKind::Container => {
                Box::new(ContainerCell::new(self.container_settings(cell, ""), cancel))
            }
            CellExecutorKind::Sandboxed => {
                Box::new(SandboxedCell::new(self.host.backend(), cell, cancel))
            }
        }
    }

    /// A container Cell of the Case with the block `container`, or with one of the image alone.
    pub fn container_settings(&self, cell: CellSettings, container: &str) -> ContainerSettings {
        let case = load_case(&self.case(container)).unwrap().case;
        let search_path = self.engine.as_ref().map(TestEngine::search_path).unwrap_or_default();
        let host = ContainerHost {
            base: self.cells(),
            helper: binary(),
            search_path: search_path.into(),
            variables: [].into(),
            caches: None,
        };
        let container = case.container.unwrap();
        ContainerSettings { cell, container, setup_egress: None, stays: false, host }
    }

    pub fn started(&self, kind: CellExecutorKind, limits: &str) -> Box<dyn Executor> {
        let cell = self.cell(kind, limits);
        cell.start().unwrap();
        cell
    }

    /// What `case exec --json` prints for `request`.
    pub fn by_command_line(&self, kind: CellExecutorKind, request: &ExecRequest) -> Value {
        let mut command = Command::new(binary());
        command.args(["case", "exec"]).arg(self.case("")).args([
            "--json",
            "--executor",
            kind.word(),
        ]);
        command.env("TMPDIR", self.cells()).env("HOST_SECRET", "of the host");
        command.envs(self.engine.as_ref().map(|engine| ("PATH", engine.search_path())));
        if let Some(cwd) = &request.cwd {
            command.arg("--cwd").arg(cwd);
        }
        for (name, value) in &request.env {
            command.arg("--env").arg(format!("{name}={}", value.as_ref().unwrap()));
        }
        command.arg("--timeout").arg(format!("{}ms", request.timeout.as_millis()));
        if request.shell {
            command.arg("--shell");
        }
        let output = command.arg("--").args(&request.argv).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.is_empty(), "{request:?}: {stderr}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let is_error = answer.get("error").is_some();
        assert_eq!(is_error, output.status.code() == Some(125), "{answer}: {}", output.status);
        answer
    }
}

/// The result of `request`, or `{"error"}`.
pub fn by_library(cell: &dyn Executor, request: &ExecRequest) -> Value {
    match cell.run(request) {
        Ok(result) => serde_json::to_value(result).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

/// Processes of this machine whose command line holds `marker`.
pub fn alive_with(marker: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let is_process = |path: &Path| {
        path.file_name().unwrap().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let own = std::process::id().to_string();
    entries
        .map(|entry| entry.path())
        .filter(|path| is_process(path) && !path.ends_with(&own))
        .filter_map(|path| fs::read(path.join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(marker))
        .collect()
}
