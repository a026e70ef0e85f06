//! An evaluation by the binary.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::tasks::write;

/// A task with files of its own, and what is evaluated on it.
pub struct Scene {
    directory: TempDir,
}

/// What `evaluate` printed and how it exited.
#[derive(Debug)]
pub struct Evaluated {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Evaluated {
    /// The printed result.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Scene {
    /// A task with these files: `files/…` is the repository.
    pub fn new(task: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().unwrap();
        let root = directory.path().join("task");
        write(&root, &[("workspace.yaml", "files: files\n"), ("prompt.md", "Mend it.\n")]);
        write(&root, task);
        Self { directory }
    }

    /// The path of `name` beside the task.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file beside the task; returns its path.
    pub fn write(&self, name: &str, contents: &str) -> String {
        fs::write(self.path(name), contents).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `cofferdam evaluate` of the task with `arguments`.
    pub fn evaluate(&self, arguments: &[&str]) -> Evaluated {
        self.evaluate_task(self.path("task").to_str().unwrap(), arguments)
    }

    /// `cofferdam evaluate` of another task with `arguments`.
    pub fn evaluate_task(&self, task: &str, arguments: &[&str]) -> Evaluated {
        self.evaluate_with(task, arguments, &[])
    }

    /// As [`Self::evaluate_task`], with these variables.
    pub fn evaluate_with(
        &self,
        task: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Evaluated {
        let output = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .arg("evaluate")
            .arg(task)
            .args(arguments)
            .env("WORKSPACE_BASE", self.path("sessions"))
            .env("HOST_SECRET", "of-the-service")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let left: Vec<_> = fs::read_dir(self.path("sessions")).into_iter().flatten().collect();
        assert!(left.is_empty(), "{left:?} is left");
        Evaluated {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The result of an agent in bash.
    pub fn agent(&self, script: &str) -> Value {
        let agent = self.write("agent.sh", script);
        self.evaluate(&["--agent", &agent, "--json"]).json()
    }
}
