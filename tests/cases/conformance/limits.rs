//! What a command may use. An executor that does not enforce a control names it, and its row is not run there.

use std::path::Path;

use nix::unistd::geteuid;
use serde_json::{Value, json};

use cofferdam::cases::{CellExecutorKind, ExecRequest};

use super::doors::{Scene, by_library};
use super::{exited, has};

/// A command under a limit.
struct LimitRow {
    guarantee: &'static str,
    /// The control that enforces it.
    control: &'static str,
    /// What the case file says.
    limits: &'static str,
    command: &'static str,
    wanted: Value,
    /// What a container does instead.
    in_container: Option<(&'static str, Value)>,
}

fn rows() -> [LimitRow; 5] {
    let limited = |outcome: &str, limit: &str| json!({"outcome": outcome, "limit": limit});
    [
        LimitRow {
            guarantee: "a command over its memory is killed, and the limit is named",
            control: "memory",
            limits: "limits: {memory_bytes: 67108864}",
            command: "head -c 300000000 /dev/zero | tail -c 300000000 >/dev/null",
            wanted: limited("memory_limit", "memory"),
            in_container: None,
        },
        LimitRow {
            guarantee: "a command over its processes fails, and the limit is named",
            control: "processes",
            limits: "limits: {processes: 16}",
            command: "for i in $(seq 64); do sleep 1000 & done",
            wanted: limited("process_limit", "processes"),
            in_container: None,
        },
        LimitRow {
            guarantee: "a command over its disk fails, and the limit is named",
            control: "disk",
            limits: "limits: {disk_bytes: 8388608}",
            command: "head -c 50000000 /dev/zero > big",
            wanted: limited("disk_limit", "disk"),
            in_container: None,
        },
        LimitRow {
            guarantee: "a command has no network but its own loopback",
            control: "network",
            limits: "",
            command: "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'",
            wanted: exited(0, "lo"),
            in_container: None,
        },
        LimitRow {
            guarantee: "a command is uid 10001",
            control: "namespaces",
            limits: "",
            command: "id -u",
            wanted: exited(0, "10001\n"),
            in_container: Some(("the caller's uid", exited(0, &format!("{}\n", geteuid())))),
        },
    ]
}

/// The controls that a container does not enforce.
const NOT_IN_CONTAINERS: [&str; 1] = ["disk"];

/// The guarantees, the control that each needs, and what holds in a container.
pub fn guarantees() -> Vec<(&'static str, &'static str, String)> {
    let in_container = |row: &LimitRow| match &row.in_container {
        Some((words, _)) => (*words).to_owned(),
        None if NOT_IN_CONTAINERS.contains(&row.control) => {
            format!("not enforced: `{}`", row.control)
        }
        None => "yes".to_owned(),
    };
    rows().iter().map(|row| (row.guarantee, row.control, in_container(row))).collect()
}

/// Whether one of `names`, each `name: reason`, is `control`.
fn names(not_enforced: &[String], control: &str) -> bool {
    not_enforced.iter().any(|text| text.split(':').next() == Some(control))
}

#[test]
fn a_limit_is_enforced_or_named() {
    let Some(scene) = Scene::new() else { return };
    for kind in scene.executors() {
        for row in rows() {
            let cell = scene.started(kind, row.limits);
            let described = cell.describe().unwrap();
            assert_eq!(described.kind, kind);
            if names(&described.not_enforced, row.control) {
                let ran = cell.run(&ExecRequest::new(["true"])).unwrap();
                assert!(names(&ran.not_enforced, row.control), "{kind:?}: {}", row.guarantee);
                continue;
            }
            let wanted = match (kind, &row.in_container) {
                (CellExecutorKind::Container, Some((_, wanted))) => wanted,
                _ => &row.wanted,
            };
            let is_named = kind == CellExecutorKind::Container
                && NOT_IN_CONTAINERS.contains(&row.control)
                || kind == CellExecutorKind::Local;
            assert!(!is_named, "{} is not named", row.control);
            let answer = by_library(cell.as_ref(), &ExecRequest::new(["sh", "-c", row.command]));
            assert!(has(&answer, wanted), "{kind:?}: {}: {answer}", row.guarantee);
            // podman's monitor would note the end there.
            assert!(!Path::new("oom").exists(), "{kind:?}: {} left a file", row.guarantee);
        }
    }
}
