//! A service with evaluations, a server of tasks on the loopback, and a repository on this host.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// How long one evaluation may take here.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Serves the files of its directory, and prints its port.
const TASK_SERVER: &str = r"
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

/// A service with evaluations.
pub struct Evaluations {
    pub service: Service,
    tasks: Child,
    port: u16,
    directory: TempDir,
}

impl Evaluations {
    pub fn start() -> Self {
        let directory = tempdir().unwrap();
        let served = directory.path().join("served");
        fs::create_dir_all(&served).unwrap();
        let mut tasks = Command::new("python3")
            .args(["-c", TASK_SERVER])
            .arg(&served)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(tasks.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let roots = directory.path().join("repositories");
        fs::create_dir_all(&roots).unwrap();
        let service = Setup::shell()
            .env("WORKSPACE_BASE", directory.path().join("sessions"))
            .env("JOBS_STORE_DIR", directory.path().join("store"))
            .env("EVAL_HOSTS_ALLOW", "127.0.0.1")
            .env("EVAL_REPO_ROOTS", &roots)
            .start();
        Self { service, tasks, port: line.trim().parse().unwrap(), directory }
    }

    /// A directory for a repository that tasks may name.
    pub fn repository(&self) -> PathBuf {
        self.scratch("repositories/a")
    }

    /// Serves the archive of a task for the only commit of `repository`, which is made of its files.
    pub fn serve_commit(&self, repository: &Path) -> (String, String) {
        let script = "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm a \
                      && git rev-parse HEAD";
        let output =
            Command::new("sh").args(["-c", script]).current_dir(repository).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let commit = String::from_utf8(output.stdout).unwrap();
        let description = format!("repo: {}\nbase_commit: {commit}", repository.display());
        self.serve(
            "commit",
            &[
                ("workspace.yaml", &description),
                ("prompt.md", ""),
                ("tests/fail_to_pass_1.sh", "exit 0\n"),
            ],
        )
    }

    /// Serves the archive of a task with `files`; returns its URL and its digest.
    pub fn serve(&self, name: &str, files: &[(&str, &str)]) -> (String, String) {
        let task = self.directory.path().join(format!("{name}.task"));
        write(&task, files);
        self.serve_directory(name, &task)
    }

    /// Serves the archive of the task in `task`; returns its URL and its digest.
    pub fn serve_directory(&self, name: &str, task: &Path) -> (String, String) {
        let archive = self.directory.path().join(format!("served/{name}.tar"));
        let status =
            Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(task).arg(".").status();
        assert!(status.unwrap().success());
        let output = Command::new("sha256sum").arg(&archive).output().unwrap();
        let digest = String::from_utf8(output.stdout).unwrap()[..64].to_owned();
        (format!("http://127.0.0.1:{}/{name}.tar", self.port), digest)
    }

    /// A directory for the files of a task.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        let length = format!("content-length: {}\r\n", body.len());
        self.service.ask(request(method, target, &length) + body)
    }

    /// Begins an evaluation; returns its id.
    #[track_caller]
    pub fn begin(&self, body: &Value) -> String {
        let answer = self.ask("POST", "/evaluate", &body.to_string());
        assert_eq!(answer.status, 202, "{answer:?}");
        let begun: Value = serde_json::from_str(&answer.body).unwrap();
        begun["eval_id"].as_str().unwrap().to_owned()
    }

    pub fn result(&self, id: &str) -> Value {
        let answer = self.ask("GET", &format!("/evaluate/{id}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Evaluates to the end, which has to be `resolved`.
    #[track_caller]
    pub fn resolve(&self, body: &Value) -> Value {
        let id = self.begin(body);
        let mut result = Value::Null;
        wait_until("the end of an evaluation", PATIENCE, || {
            result = self.result(&id);
            !result["verdict"].is_null()
        });
        assert_eq!(result["verdict"], "resolved", "{result:#}");
        result
    }
}

/// What a shell agent is posted with.
pub fn agent(task: &(String, String), script: &str) -> Value {
    json!({
        "task_url": task.0, "task_sha256": task.1, "agent_code": script, "agent_language": "sh",
    })
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, contents) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

impl Drop for Evaluations {
    fn drop(&mut self) {
        self.tasks.kill().unwrap();
        self.tasks.wait().unwrap();
    }
}
