//! A service with evaluations, and a server of tasks on the loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, request};
use crate::service::{Service, Setup, wait_until};

/// How long an evaluation may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A task whose only test wants the file `done`.
pub const WANTS_DONE: [(&str, &str); 4] = [
    ("workspace.yaml", "files: files\n"),
    ("prompt.md", "Make the file done.\n"),
    ("files/a", "1\n"),
    ("tests/fail_to_pass_1.sh", "test -e done\n"),
];

/// A service with evaluations.
#[derive(Debug)]
pub struct EvaluationScene {
    pub service: Service,
    server: Child,
    port: u16,
    directory: TempDir,
    env: Vec<(String, String)>,
}

impl EvaluationScene {
    #[expect(clippy::new_without_default, reason = "it starts a service")]
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// A service with these variables too.
    pub fn with(env: &[(&str, &str)]) -> Self {
        Self::over(Setup::shell(), env)
    }

    /// As [`EvaluationScene::with`], of `setup`.
    pub fn over(setup: Setup, env: &[(&str, &str)]) -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("served")).unwrap();
        let mut server = Command::new("python3")
            .args(["-c", include_str!("task_server.py")])
            .arg(directory.path().join("served"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let env: Vec<_> = env.collect();
        let service = start(setup, directory.path(), &env);
        Self { service, server, port: line.trim().parse().unwrap(), directory, env }
    }

    /// Starts another service over the same directory.
    pub fn start_again(&mut self) {
        self.service = start(Setup::shell(), self.directory.path(), &self.env);
    }

    /// A path of this scene.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The files and directories that evaluations have left.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let below = |path: &Path| {
            let listed = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            listed.collect::<Vec<_>>()
        };
        let services = below(&self.path("sessions"));
        services.iter().flat_map(|own| below(own)).flat_map(|kind| below(&kind)).collect()
    }

    /// Waits until evaluations have left nothing.
    #[track_caller]
    pub fn wait_for_no_leftovers(&self) {
        wait_until("no files of evaluations", PATIENCE, || self.leftovers().is_empty());
    }

    /// The URL of `name` on the server of tasks.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// Serves an archive of a task with `files`, which `tar` packs with `options`.
    pub fn serve_packed(&self, name: &str, files: &[(&str, &str)], options: &[&str]) -> String {
        let task = TempDir::new().unwrap();
        write(task.path(), files);
        self.pack(name, task.path(), options)
    }

    /// Serves an archive of the directory `task`.
    pub fn pack(&self, name: &str, task: &Path, options: &[&str]) -> String {
        let archive = self.path("served").join(name);
        let mut tar = Command::new("tar");
        tar.args(options).arg("-cf").arg(&archive).arg("-C").arg(task).arg(".");
        assert!(tar.status().unwrap().success());
        self.url(name)
    }

    /// Serves a task with `files`; returns its URL.
    pub fn serve(&self, files: &[(&str, &str)]) -> String {
        let count = fs::read_dir(self.path("served")).unwrap().count();
        self.serve_packed(&format!("task{count}.tar"), files, &[])
    }

    /// Serves [`WANTS_DONE`], with its test in place of its own.
    pub fn serve_test(&self, test: &str) -> String {
        let mut files = WANTS_DONE;
        files[3].1 = test;
        self.serve(&files)
    }

    pub fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        let length = format!("content-length: {}\r\n", body.len());
        self.service.ask(request(method, target, &length) + body)
    }

    pub fn post(&self, body: &Value) -> Answer {
        self.ask("POST", "/evaluate", &body.to_string())
    }

    /// Begins an evaluation; returns its id.
    #[track_caller]
    pub fn begin(&self, body: &Value) -> String {
        let answer = self.post(body);
        assert_eq!(answer.status, 202, "{answer:?}");
        let begun: Value = serde_json::from_str(&answer.body).unwrap();
        begun["eval_id"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    pub fn result(&self, id: &str) -> Value {
        let answer = self.ask("GET", &format!("/evaluate/{id}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// The result once `is_reached` holds of it.
    #[track_caller]
    pub fn wait(&self, id: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
        let mut result = Value::Null;
        wait_until("a state of an evaluation", PATIENCE, || {
            result = self.result(id);
            is_reached(&result)
        });
        result
    }

    /// The result at the end.
    #[track_caller]
    pub fn end(&self, id: &str) -> Value {
        self.wait(id, |result| !result["verdict"].is_null())
    }

    /// Evaluates to the end.
    #[track_caller]
    pub fn evaluate(&self, body: &Value) -> Value {
        self.end(&self.begin(body))
    }

    /// The result of an agent in bash on the task at `url`.
    #[track_caller]
    pub fn agent(&self, url: &str, script: &str) -> Value {
        self.evaluate(&shell_agent(url, script))
    }
}

impl Drop for EvaluationScene {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

fn start(setup: Setup, directory: &Path, env: &[(String, String)]) -> Service {
    let mut setup = setup
        .env("WORKSPACE_BASE", directory.join("sessions"))
        .env("JOBS_STORE_DIR", directory.join("store"))
        .env("EVAL_HOSTS_ALLOW", "127.0.0.1")
        .env("EVAL_REPO_ROOTS", directory);
    for (name, value) in env {
        setup = setup.env(name, value);
    }
    setup.start()
}

/// The request for an agent in bash.
pub fn shell_agent(url: &str, script: &str) -> Value {
    json!({"task_url": url, "agent_code": script, "agent_language": "sh"})
}

pub fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, contents) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}
