//! Boxes that stand ready, and runs that are shown to have had one.

use std::time::Duration;

use cofferdam_test_server::client::{Answer, Client, post};
use cofferdam_test_server::host::{Process, is_running, ready_sandboxes};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace, makefile};
use serde_json::Value;

/// How long making a box ahead, or letting go of one, may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What a script ends with that is to be seen in its box.
pub const LINGER: &str = "sleep 0.3";

/// More files than are copied.
pub const OVERLAID_FILES: usize = 30;

/// A server whose boxes of the shell are at most `boxes_max` ahead.
pub fn shell_with(boxes_max: usize) -> Setup {
    Setup::shell().env("STANDBY_MAX", boxes_max.to_string())
}

/// Languages that all are the shell, each with a workspace of its own; the last one's is overlaid.
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

/// The boxes that stand once there are `count` of them.
#[track_caller]
pub fn wait_ready(service: &Service, count: usize) -> Vec<Process> {
    let mut ready = Vec::new();
    wait_until(&format!("{count} boxes made ahead"), PATIENCE, || {
        ready = ready_sandboxes(service.pid());
        ready.len() == count
    });
    ready
}

/// Posts `body`, whose program lingers in a `sleep`, and shows that it does so in one of `ready`.
/// Its answer is still to come.
#[track_caller]
pub fn begin_in_one_of(ready: &[Process], service: &Service, body: &Value) -> Client {
    let mut client = service.connect();
    client.send(post("", body.to_string()));
    let is_in_it = |init: &Process| init.is_alive() && is_running(init.pid, "sleep");
    wait_until("the run in a box made ahead", PATIENCE, || ready.iter().any(is_in_it));
    client
}

/// Runs `body`, which lingers, in a box that was made ahead.
#[track_caller]
pub fn run_in_ready(service: &Service, body: &Value) -> Answer {
    let mut ready = Vec::new();
    wait_until("a box made ahead", PATIENCE, || {
        ready = ready_sandboxes(service.pid());
        !ready.is_empty()
    });
    begin_in_one_of(&ready, service, body).answer()
}
