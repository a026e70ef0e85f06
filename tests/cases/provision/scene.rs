//! A Case with an environment, packages, an index of them on the loopback, and Cells that remember what they ran.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

use cofferdam::case::file::{CaseEnvironment, load_case};
use cofferdam::cases::{
    BuiltInProvisioner, CellDescription, CellEntry, CellExecutorKind, CellSettings, ExecError,
    ExecRequest, ExecResult, Executor, LocalCell, LocalSettings, PassedVariables, ProvisionError,
    ProvisionPlaces, ProvisionRequest, ProvisionedEnvironment, Provisioner, SandboxedCell,
    provision_timeout,
};
use cofferdam::egress::EgressGrant;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_sandbox::plan::PATH_DEFAULT;
use cofferdam_test_support::{Host, host};

pub const EXECUTORS: [CellExecutorKind; 2] = [CellExecutorKind::Sandboxed, CellExecutorKind::Local];

/// The directory of a Case, and packages.
pub struct Scene {
    place: TempDir,
    host: Host,
}

/// An index of packages on the loopback. It ends when this is dropped.
pub struct Index {
    server: Child,
    pub url: String,
}

/// A started Cell that remembers what it ran. It is stopped when this is dropped.
#[derive(Debug)]
pub struct RecordedCell {
    cell: Box<dyn Executor>,
    ran: Mutex<Vec<(ExecRequest, ExecResult)>>,
    case_dir: PathBuf,
}

impl Scene {
    /// None where sandboxes are impossible.
    pub fn new() -> Option<Self> {
        let host = host()?;
        let place = tempfile::tempdir().unwrap();
        for directory in ["case/src", "cells", "index/simple"] {
            fs::create_dir_all(place.path().join(directory)).unwrap();
        }
        fs::write(place.path().join("backend.py"), include_str!("backend.py")).unwrap();
        Some(Self { place, host })
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.place.path().join(below)
    }

    /// Makes a package in the directory `below`: `wheel`, `sdist` or, for a source tree, `source`.
    pub fn make(&self, kind: &str, name: &str, version: &str, below: &str) {
        let mut command = Command::new("/usr/bin/python3");
        command.arg(self.path("backend.py")).args([kind, name, version]).arg(self.path(below));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Serves the directory `index`.
    pub fn index(&self) -> Index {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]);
        command.current_dir(self.path("index")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.split("port ").nth(1).unwrap().split(' ').next().unwrap();
        Index { server, url: format!("http://127.0.0.1:{port}/simple") }
    }

    /// The block `environment` of a case file.
    pub fn environment(&self, block: &str) -> CaseEnvironment {
        let directory = self.path("case");
        let head = "id: a\ntask: {prompt: p}\nmatrix: {harnesses: [nop], models: [m]}\n";
        fs::write(directory.join("case.yaml"), format!("{head}environment: {block}\n")).unwrap();
        load_case(&directory).unwrap().case.environment.unwrap()
    }

    /// A started Cell with the directory `src` of the Case.
    pub fn cell(&self, kind: CellExecutorKind) -> RecordedCell {
        let source = Some(self.path("case/src"));
        let settings = CellSettings { source, ..CellSettings::default() };
        let cancel = CancelToken::new().unwrap();
        let cell: Box<dyn Executor> = match kind {
            CellExecutorKind::Local => {
                let (base, helper) = (self.path("cells"), binary());
                Box::new(LocalCell::new(LocalSettings { cell: settings, base, helper }, cancel))
            }
            _ => Box::new(SandboxedCell::new(self.host.backend(), settings, cancel)),
        };
        cell.start().unwrap();
        RecordedCell { cell, ran: Mutex::default(), case_dir: self.path("case") }
    }
}

impl RecordedCell {
    pub fn places(&self) -> ProvisionPlaces {
        ProvisionPlaces {
            env: self.describe().unwrap().env,
            case_dir: self.case_dir.clone(),
            python: "python3".to_owned(),
            path: PATH_DEFAULT.to_owned(),
        }
    }

    /// Makes `environment` with `variables` of ours.
    pub fn provision(
        &self,
        environment: &CaseEnvironment,
        variables: &[(&str, &str)],
    ) -> Result<ProvisionedEnvironment, ProvisionError> {
        self.provision_within(environment, variables, None)
    }

    /// The same, reaching what `egress` lets it reach.
    pub fn provision_within(
        &self,
        environment: &CaseEnvironment,
        variables: &[(&str, &str)],
        egress: Option<&EgressGrant>,
    ) -> Result<ProvisionedEnvironment, ProvisionError> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = PassedVariables::read(variables.iter().map(owned).collect())?;
        let request = ProvisionRequest {
            environment,
            places: &self.places(),
            variables: &variables,
            egress,
            deadline: Deadline::after(provision_timeout(environment)),
        };
        BuiltInProvisioner.provision(self, &request)
    }

    /// What `command` of a shell prints with `env`.
    pub fn printed(&self, command: &str, env: &BTreeMap<String, Option<String>>) -> String {
        let env = env.clone();
        let request = ExecRequest { env, shell: true, ..ExecRequest::new([command]) };
        let result = self.cell.run(&request).unwrap();
        assert_eq!(result.exit_code, Some(0), "{result:?}");
        result.stdout.text.trim().to_owned()
    }

    /// What provisioning ran.
    pub fn ran(&self) -> Vec<(ExecRequest, ExecResult)> {
        self.ran.lock().unwrap().clone()
    }
}

impl Executor for RecordedCell {
    fn start(&self) -> Result<(), ExecError> {
        self.cell.start()
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        let result = self.cell.run(request)?;
        self.ran.lock().unwrap().push((request.clone(), result.clone()));
        Ok(result)
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.cell.put(path, content, mode)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.cell.get(path)
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.cell.remove(path)
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.cell.list(path)
    }

    fn stop(&self) {
        self.cell.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.cell.describe()
    }
}

impl Drop for RecordedCell {
    fn drop(&mut self) {
        self.cell.stop();
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn binary() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_cofferdam");
    std::env::var_os("COFFERDAM_BIN").unwrap_or_else(|| built.into()).into()
}

/// The text of `path` below `directory`.
pub fn joined(directory: &Path, path: &str) -> String {
    directory.join(path).to_str().unwrap().to_owned()
}
