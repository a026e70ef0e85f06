//! One suite for every executor of a Cell, through the library and through `cofferdam case exec`.
//!
//! A row about a control that an executor does not enforce is not run there: the executor has to name the control.

mod commands;
mod containers;
mod document;
pub mod doors;
mod ends;
pub mod engine;
mod entries;
mod files;
mod lasting;
mod lifecycle;
mod limits;
mod ruled;

use serde_json::{Value, json};

use cofferdam::cases::{CellExecutorKind, ExecRequest};
use doors::Scene;

/// One command and what has to come of it.
pub struct Row {
    /// The guarantee, in words.
    pub guarantee: &'static str,
    /// The command.
    pub request: ExecRequest,
    /// What the result, or `{"error"}`, has; other keys are not compared.
    pub wanted: Value,
    /// Whether the command line can ask for it.
    pub has_command_line: bool,
}

impl Row {
    /// A row through both doors.
    pub fn new(
        guarantee: &'static str,
        argv: &[&str],
        change: impl FnOnce(&mut ExecRequest),
        wanted: Value,
    ) -> Self {
        let mut request = ExecRequest::new(argv.iter().copied());
        change(&mut request);
        Self { guarantee, request, wanted, has_command_line: true }
    }

    /// A row about a command of `sh -c`.
    pub fn of_shell(guarantee: &'static str, command: &str, wanted: Value) -> Self {
        Self::new(guarantee, &["sh", "-c", command], |_| {}, wanted)
    }

    /// The same for the library alone.
    pub fn by_library(self) -> Self {
        Self { has_command_line: false, ..self }
    }
}

/// The end of a program that exited with `code` and wrote `stdout`.
pub fn exited(code: u8, stdout: &str) -> Value {
    json!({"outcome": "exited", "exit_code": code, "signal": null, "limit": null, "stdout": {"text": stdout}})
}

/// An error with that code.
pub fn error(code: &str) -> Value {
    json!({"error": {"code": format!("exec.{code}")}})
}

/// Whether `found` has all that `wanted` has.
pub fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| found.get(key).is_some_and(|found| has(found, wanted))),
        _ => found == wanted,
    }
}

/// Runs all rows by all executors, through all doors; every failure is reported.
pub fn run_rows(rows: &[Row]) {
    let Some(scene) = Scene::new() else { return };
    let mut wrong = Vec::new();
    for kind in scene.executors() {
        let cell = scene.started(kind, "");
        // By the command line each command has a container of its own, which takes seconds.
        let by_command_line_max = match kind {
            CellExecutorKind::Container => 1,
            _ => rows.len(),
        };
        for (index, row) in rows.iter().enumerate() {
            let mut answers = vec![("library", doors::by_library(cell.as_ref(), &row.request))];
            if row.has_command_line && index < by_command_line_max {
                answers.push(("command line", scene.by_command_line(kind, &row.request)));
            }
            for (door, answer) in answers {
                if !has(&answer, &row.wanted) {
                    let (guarantee, wanted) = (row.guarantee, &row.wanted);
                    wrong.push(format!("{kind:?}, {door}: {guarantee}\n  {wanted}\n  {answer}"));
                }
            }
        }
        cell.stop();
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
