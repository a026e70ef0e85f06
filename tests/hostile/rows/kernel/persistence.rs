//! IPC objects and files that a run leaves behind.

use serde_json::{Value, json};

use super::answers::{Expected, OK, answers_told, texts, together};
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

pub fn ipc(target: &Target) -> Result<(), Unexercised> {
    const KINDS: &[&str] = &["shm", "sem", "msg", "mq"];
    // The same search finds them in the run that made them.
    let left = || {
        Expected::default()
            .each("leave-", KINDS, OK)
            .each("find-", KINDS, OK)
            .all(&["guessed", "listed"], &["some"])
    };
    let clean = || {
        Expected::default().each("find-", KINDS, &["ENOENT"]).all(&["guessed", "listed"], &["none"])
    };
    let leave = Probe::c("ipc").arg("leave");
    let look = Probe::c("ipc").arg("look");
    left().hold(answers_told(&target.observe(&leave)));
    clean().hold(answers_told(&target.observe(&look)));
    let (held, seen) = together(target, &leave.arg("1500"), &look);
    left().hold(answers_told(&held));
    clean().hold(answers_told(&seen));
    Ok(())
}

pub fn files(target: &Target) -> Result<(), Unexercised> {
    let look = Probe::python("left_behind").arg(false).arg(0);
    let before = target.observe(&look);
    assert_clean(&before, &before);
    assert_left(&target.observe(&Probe::python("left_behind").arg(true).arg(0)));
    for _ in 0..2 {
        assert_clean(&target.observe(&look), &before);
    }
    let (held, seen) = together(target, &Probe::python("left_behind").arg(true).arg(2), &look);
    assert_left(&held);
    assert_clean(&seen, &before);
    Ok(())
}

/// The run could write to every writable place, and a search finds its files there.
#[track_caller]
fn assert_left(run: &Value) {
    let found = texts(&run["found"]);
    for place in ["/workspace", "/workspace/check", "/tmp", "/tmp/home", "/dev/shm"] {
        assert_eq!(run["left"][place], "ok", "{place}");
        let name = format!("{place}/left-behind");
        assert!(found.contains(&name.as_str()), "{name} in {found:?}");
    }
    assert_eq!(run["changed"], json!(["ok", "ok"]), "{run}");
}

#[track_caller]
fn assert_clean(run: &Value, before: &Value) {
    assert_eq!(run["found"], json!([]));
    assert_eq!(run["workspace"], before["workspace"], "the workspace's Makefile");
}
