//! Waits for prepared sandboxes and checks that runs use them.

use std::time::Duration;

use cofferdam_test_server::client::{Answer, Client, post};
use cofferdam_test_server::host::{Process, is_running, ready_sandboxes};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace, makefile};
use serde_json::Value;

/// How long the preparation or removal of a sandbox may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The metric that counts them.
const USED: &str = "cofferdam_standby_boxes_used_total ";

/// More files than are copied, so the workspace becomes an overlay.
pub const OVERLAID_FILES: usize = 30;

/// A server that runs the shell and prepares at most `sandboxes_max` sandboxes.
pub fn shell_with(sandboxes_max: usize) -> Setup {
    Setup::shell().env("STANDBY_MAX", sandboxes_max.to_string())
}

/// Languages that all run the shell, each with its own workspace. That of the last one is an
/// overlay.
pub fn shells(slugs: &[&str]) -> Workspace {
    let langs = Workspace::empty();
    let mut table = String::new();
    for slug in slugs {
        table.push_str(&format!(
            "[{slug}]\nfolder = \"check\"\nsolution = \"solution.sh\"\nrequires = [\"sh\"]\n\
             version = [\"echo\", \"1\"]\n"
        ));
        langs.put(&format!("{slug}/Makefile"), &makefile(&[RUN_SOLUTION]));
    }
    langs.put("languages.toml", &table);
    let last = slugs.last().unwrap();
    for number in 0..OVERLAID_FILES {
        langs.put(&format!("{last}/lib/{number}"), "one of many\n");
    }
    langs
}

/// Waits for `count` prepared sandboxes and returns their inits.
#[track_caller]
pub fn wait_ready(service: &Service, count: usize) -> Vec<Process> {
    let mut ready = Vec::new();
    wait_until(&format!("{count} prepared sandboxes"), PATIENCE, || {
        ready = ready_sandboxes(service.pid());
        ready.len() == count
    });
    ready
}

/// Posts `body`, whose program stays in a `sleep`, and checks that it runs in one of `ready`. The
/// answer is not read yet.
#[track_caller]
pub fn begin_in_one_of(ready: &[Process], service: &Service, body: &Value) -> Client {
    let mut client = service.connect();
    client.send(post("", body.to_string()));
    let is_in_it = |init: &Process| init.is_alive() && is_running(init.pid, "sleep");
    wait_until("the run in a prepared sandbox", PATIENCE, || ready.iter().any(is_in_it));
    client
}

/// How many prepared sandboxes were used so far.
#[track_caller]
pub fn used(service: &Service) -> u64 {
    let metrics = service.get("/metrics").body;
    let count = metrics.lines().find_map(|line| line.strip_prefix(USED));
    count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// Runs a program with `run`, and checks that one of `ready` was used for it and has ended with it.
#[track_caller]
pub fn in_one_of<T>(ready: &[Process], service: &Service, run: impl FnOnce() -> T) -> T {
    let before = used(service);
    let answer = run();
    wait_until("the end of a prepared sandbox", PATIENCE, || {
        ready.iter().any(|init| !init.is_alive())
    });
    assert_eq!(used(service), before + 1);
    answer
}

/// Runs `body` in a prepared sandbox.
#[track_caller]
pub fn run_in_ready(service: &Service, body: &Value) -> Answer {
    let mut ready = Vec::new();
    wait_until("a prepared sandbox", PATIENCE, || {
        ready = ready_sandboxes(service.pid());
        !ready.is_empty()
    });
    in_one_of(&ready, service, || service.post(body))
}
