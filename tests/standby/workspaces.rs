//! Sandboxes prepared over workspaces: when there are any, what programs see in them, what ends them.

use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::host::{Process, descendants, mounts, ready_sandboxes};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::ready::{PATIENCE, in_one_of, used, wait_ready};

const SEE: &str = include_str!("see.py");

/// A service with workspaces.
struct Workspaces {
    service: Service,
    _directory: TempDir,
}

impl Workspaces {
    fn with(standby_max: usize) -> Self {
        let directory = tempdir().unwrap();
        let setup = Setup::shell().env("STANDBY_MAX", standby_max.to_string());
        let setup = setup.env("ENGINE_STORE_DIR", directory.path().join("engine"));
        Self { service: setup.env("JOBS", "off").start(), _directory: directory }
    }

    fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        let length = format!("content-length: {}\r\n", body.len());
        self.service.ask(request(method, target, &length) + body)
    }

    fn json(&self, method: &str, target: &str, body: &Value) -> Value {
        let answer = self.ask(method, target, &body.to_string());
        assert!(answer.status < 300, "{answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    fn create(&self, body: &Value) -> String {
        let made = self.json("POST", "/v1/workspaces", body);
        format!("/v1/workspaces/{}", made["workspace_id"].as_str().unwrap())
    }

    fn run(&self, workspace: &str, body: &Value) -> Value {
        self.json("POST", &format!("{workspace}/run"), body)
    }

    /// Runs a shell script, which must succeed, and returns its output.
    #[track_caller]
    fn sh(&self, workspace: &str, script: &str) -> String {
        let result = self.run(workspace, &json!({"cmd": "sh", "args": ["-ec", script]}));
        assert_eq!(result["exit_code"], 0, "{result}");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Runs programs until a sandbox is prepared, and returns its init.
    fn prepared(&self, workspace: &str) -> Process {
        // The second program is the first that one is prepared for.
        self.sh(workspace, ":");
        self.sh(workspace, ":");
        wait_ready(&self.service, 1)[0]
    }

    /// Runs a program with `run`, and checks that it was in the sandbox of `init`.
    #[track_caller]
    fn in_sandbox<T>(&self, init: Process, run: impl FnOnce() -> T) -> T {
        in_one_of(&[init], &self.service, run)
    }
}

#[test]
fn one_program_is_not_prepared_for_and_each_later_one_has_a_sandbox_of_its_own() {
    let workspaces = Workspaces::with(2);
    let workspace = workspaces.create(&json!({}));
    workspaces.sh(&workspace, "echo kept >file");
    let mut used: Vec<Process> = Vec::new();
    for round in 0..4 {
        if round == 0 {
            workspaces.sh(&workspace, ":");
        }
        let ready = wait_ready(&workspaces.service, 1)[0];
        assert!(!used.contains(&ready), "a used sandbox is ready again");
        let script = "cat file; ls /run /dev/shm; echo $$; echo left >/dev/shm/left; (sleep 60 &)";
        let seen = workspaces.in_sandbox(ready, || workspaces.sh(&workspace, script));
        assert_eq!(seen, "kept\n/dev/shm:\n\n/run:\nlock\n2\n", "round {round}");
        wait_until("the sandbox to end", PATIENCE, || !ready.is_alive());
        used.push(ready);
    }
}

#[test]
fn what_changes_after_the_preparation_is_seen() {
    let workspaces = Workspaces::with(2);
    let workspace = workspaces.create(&json!({"env": {"OF": "workspace"}}));
    let ready = workspaces.prepared(&workspace);
    let put = workspaces.ask("PUT", &format!("{workspace}/files?path=new/file"), "by request");
    assert_eq!(put.status, 201, "{put:?}");
    let body = json!({
        "cmd": "sh", "cwd": "later", "env": {"OWN": "x y"}, "timeout_ms": 5000,
        "args": ["-c", "cat ../new/file; echo; pwd; echo $PWD $OF $OWN $#; ulimit -t", "a", "b"],
    });
    let result = workspaces.in_sandbox(ready, || workspaces.run(&workspace, &body));
    let later = "/workspace/later";
    let seen = format!("by request\n{later}\n{later} workspace x y 1\n4294967295\n");
    assert_eq!(result["stdout"], seen, "{result}");
}

#[test]
fn a_prepared_sandbox_over_a_workspace_looks_like_a_new_one() {
    let seen = |standby_max| {
        let workspaces = Workspaces::with(standby_max);
        let workspace = workspaces.create(&json!({"env": {"RUN_DIR": "none"}}));
        let put = workspaces.ask("PUT", &format!("{workspace}/files?path=see.py"), SEE);
        assert_eq!(put.status, 201, "{put:?}");
        let see = || {
            let body = json!({"cmd": "python3", "args": ["-IS", "see.py"]});
            let result = workspaces.run(&workspace, &body);
            assert_eq!(result["exit_code"], 0, "{result}");
            let output = result["stdout"].as_str().unwrap().to_owned();
            // Other names and times.
            let varies =
                |line: &str| ["/runs/run_", "/metadata.json"].map(|part| line.contains(part));
            let lines = output.lines().filter(|line| !varies(line).contains(&true));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        if standby_max == 0 {
            see();
            return see();
        }
        let ready = workspaces.prepared(&workspace);
        workspaces.in_sandbox(ready, see)
    };
    let (new, prepared) = (seen(0), seen(2));
    for part in ["Seccomp: 2", "NoNewPrivs: 1", "/workspace/see.py", "Max cpu time"] {
        assert!(new.contains(part), "{part:?} is not in {new}");
    }
    let lines = new.lines().zip(prepared.lines());
    let differ: Vec<_> = lines.filter(|(new, prepared)| new != prepared).collect();
    assert!(new == prepared, "{differ:#?}");
}

#[test]
fn a_program_that_cannot_be_started_is_answered_as_in_a_new_sandbox() {
    let answers = |standby_max| {
        let workspaces = Workspaces::with(standby_max);
        let workspace = workspaces.create(&json!({}));
        workspaces.sh(&workspace, "echo >file; mkdir d; ln -s file d/link");
        let bodies = [
            json!({"cmd": "no-such-program"}),
            json!({"cmd": "./file"}),
            json!({"cmd": "/workspace/d"}),
            json!({"cmd": "true", "cwd": "d/link"}),
            json!({"cmd": "true", "env": {"PATH": "/none:/workspace"}}),
        ];
        bodies.map(|body| {
            if standby_max > 0 {
                workspaces.prepared(&workspace);
            }
            let answer = workspaces.ask("POST", &format!("{workspace}/run"), &body.to_string());
            let value: Value = serde_json::from_str(&answer.body).unwrap();
            let parts = ["exit_code", "outcome", "error", "code", "message", "details"];
            (answer.status, parts.map(|part| value[part].clone()))
        })
    };
    let (new, prepared) = (answers(0), answers(2));
    assert_eq!(new[0].1[1], "not_started", "{new:?}");
    for (new, prepared) in new.iter().zip(&prepared) {
        assert_eq!(new, prepared);
    }
}

#[test]
fn a_program_that_does_not_fit_has_a_new_sandbox() {
    let workspaces = Workspaces::with(2);
    let workspace = workspaces.create(&json!({}));
    let long = "x".repeat(40_000);
    for (body, stdout) in [
        (json!({"cmd": "cat", "stdin": "input"}), "input"),
        (json!({"cmd": "sh", "args": ["-c", "echo ${#1}", "sh", long]}), "40000\n"),
        (
            json!({"cmd": "sh", "args": ["-c", "ulimit -u >/dev/null; echo other"],
                   "limits": {"memory_mb": 100}}),
            "other\n",
        ),
    ] {
        workspaces.prepared(&workspace);
        let before = used(&workspaces.service);
        assert_eq!(workspaces.run(&workspace, &body)["stdout"], stdout);
        assert_eq!(used(&workspaces.service), before, "{stdout}");
    }
}

#[test]
fn a_killed_prepared_sandbox_costs_no_program() {
    let workspaces = Workspaces::with(2);
    let workspace = workspaces.create(&json!({}));
    for round in 0..3 {
        let ready = workspaces.prepared(&workspace);
        kill(Pid::from_raw(ready.pid), Signal::SIGKILL).unwrap();
        wait_until("the death of the prepared sandbox", PATIENCE, || !ready.is_alive());
        assert_eq!(workspaces.sh(&workspace, "echo fine"), "fine\n", "round {round}");
    }
}

#[test]
fn whoever_takes_the_files_alone_finds_no_prepared_sandbox() {
    let workspaces = Workspaces::with(4);
    let workspace = workspaces.create(&json!({}));
    let pid = workspaces.service.pid();
    for round in 0..4 {
        workspaces.sh(&workspace, &format!("echo {round} >file"));
        let ready = workspaces.prepared(&workspace);
        let (snapshot, fork) = (format!("{workspace}/snapshot"), format!("{workspace}/fork"));
        let target = if round % 2 == 0 { &snapshot } else { &fork };
        let made = workspaces.json("POST", target, &json!({}));
        assert!(!ready.is_alive(), "{target}");
        workspaces.sh(&workspace, "echo changed >file");
        if let Some(id) = made["workspace_id"].as_str() {
            let fork = format!("/v1/workspaces/{id}");
            // The first program in it, for which none is prepared.
            assert_eq!(workspaces.sh(&fork, "cat file"), format!("{round}\n"));
            workspaces.json("DELETE", &fork, &json!({}));
        }
        assert_eq!(workspaces.sh(&workspace, "cat file"), "changed\n");
    }
    // Cleanup.
    let ready = workspaces.prepared(&workspace);
    assert_eq!(workspaces.ask("DELETE", &workspace, "").status, 200);
    assert!(!ready.is_alive() && ready_sandboxes(pid).is_empty());
}

#[test]
fn idle_workspaces_have_no_process_and_no_mount() {
    let workspaces = Workspaces::with(2);
    let pid = workspaces.service.pid();
    let before = mounts(pid);
    let idle: Vec<String> = (0..3).map(|_| workspaces.create(&json!({}))).collect();
    for workspace in &idle {
        workspaces.sh(workspace, ":");
        workspaces.sh(workspace, ":");
    }
    // No more than the pool may hold.
    wait_ready(&workspaces.service, 2);
    wait_until("the end of the prepared sandboxes", PATIENCE, || descendants(pid).is_empty());
    assert_eq!(mounts(pid), before);
    for workspace in &idle {
        assert_eq!(workspaces.sh(workspace, "echo again"), "again\n");
    }
}
