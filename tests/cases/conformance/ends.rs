//! How commands end, and that nothing of them is left.

use std::time::Duration;

use serde_json::json;

use super::doors::alive_with;
use super::{Row, exited, run_rows};

/// Stands in the command line of every process that must not survive.
const MARKER: &str = "7531.0246813";

pub fn rows() -> Vec<Row> {
    let by_signal = |number: i32| json!({"outcome": "signaled", "exit_code": null, "signal": number, "limit": null});
    let mut rows = vec![
        Row::of_shell("an exit code is passed on", "exit 42", exited(42, "")),
        Row::of_shell("SIGKILL is a signal, not a code", "kill -9 $$", by_signal(9)),
        Row::of_shell("SIGTERM has its usual effect", "kill -15 $$", by_signal(15)),
        Row::of_shell("SIGPIPE has its usual effect", "kill -13 $$", by_signal(13)),
        Row::of_shell("a signal to the own group reaches nothing else", "kill -9 0", by_signal(9)),
        Row::new("a missing program is 127", &["no-such-program"], |_| {}, exited(127, "")),
        Row::new("a missing path is 127", &["./no/such"], |_| {}, exited(127, "")),
        Row::new("a missing interpreter is 127", &["./no-interpreter"], |_| {}, exited(127, "")),
        Row::new(
            "a missing command of a shell is 127",
            &["no-such-program"],
            |request| request.shell = true,
            exited(127, ""),
        ),
        Row::new("a file that is not executable is 126", &["./plain"], |_| {}, exited(126, "")),
        Row::new("a directory as a program is 126", &["./dir"], |_| {}, exited(126, "")),
    ];
    rows.extend(timed());
    rows
}

fn timed() -> Vec<Row> {
    let late = |text: &str| json!({"outcome": "timed_out", "exit_code": null, "signal": null, "limit": "wall_time", "stdout": {"text": text}});
    let within = |milliseconds: u64| {
        move |request: &mut super::ExecRequest| {
            request.timeout = Duration::from_millis(milliseconds);
        }
    };
    let sessions = format!("echo part; for i in $(seq 200); do setsid sleep {MARKER} & done; wait");
    let deaf = format!("trap '' TERM INT HUP; echo part; sleep {MARKER}");
    vec![
        Row::new("out of time is a result", &["sleep", MARKER], within(300), late("")),
        Row::new(
            "out of time, what was written is kept",
            &["sh", "-c", &deaf],
            within(3000),
            late("part\n"),
        ),
        Row::new(
            "out of time, 200 sessions are killed",
            &["sh", "-c", &sessions],
            within(3000),
            late("part\n"),
        ),
        Row::of_shell(
            "a shell can wait for its children",
            "sleep 0.5 & wait; echo done",
            exited(0, "done\n"),
        ),
        Row::of_shell(
            "a background child does not delay the end, and dies",
            &format!("sleep {MARKER} & echo done"),
            exited(0, "done\n"),
        ),
        Row::of_shell(
            "a child in a session of its own dies with the command",
            &format!("setsid sleep {MARKER} & echo done"),
            exited(0, "done\n"),
        ),
        Row::of_shell(
            "an orphan's orphan dies with the command",
            &format!("(setsid sh -c 'sleep {MARKER} & sleep {MARKER}' &) ; echo done"),
            exited(0, "done\n"),
        ),
    ]
}

#[test]
fn every_executor_tells_how_a_command_ended_and_leaves_no_process() {
    run_rows(&rows());
    assert_eq!(alive_with(MARKER), [""; 0]);
}
