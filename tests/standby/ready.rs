//! Boxes that stand ready, and runs that are shown to have had one.

use std::time::Duration;

use serde_json::Value;

use crate::server::client::{Answer, Client, post};
use crate::server::host::{Process, is_running, ready_boxes};
use crate::server::service::{Service, Setup, wait_until};

/// How long making a box ahead, or letting go of one, may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// What a script ends with that is to be seen in its box.
pub const LINGER: &str = "sleep 0.3";

/// A server whose boxes of the shell are at most `boxes_max` ahead.
pub fn shell_with(boxes_max: usize) -> Setup {
    Setup::shell().env("STANDBY_MAX", boxes_max.to_string())
}

/// The boxes that stand once there are `count` of them.
#[track_caller]
pub fn wait_ready(service: &Service, count: usize) -> Vec<Process> {
    let mut ready = Vec::new();
    wait_until(&format!("{count} boxes made ahead"), PATIENCE, || {
        ready = ready_boxes(service.pid());
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
        ready = ready_boxes(service.pid());
        !ready.is_empty()
    });
    begin_in_one_of(&ready, service, body).answer()
}
