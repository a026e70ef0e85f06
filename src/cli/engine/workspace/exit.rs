//! The exit codes of programs in workspaces: those of `exec`.

use serde::Deserialize;
use serde_json::Value;

use crate::cli::failure::{BY_SIGNAL, NOT_EXECUTABLE, NOT_FOUND, OTHER_LIMIT, SANDBOX, TIME_LIMIT};

/// The result of a program, with the fields that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProgramEnd {
    exit_code: Option<i64>,
    signal: Option<u8>,
    timed_out: bool,
    limit: Option<String>,
    /// Why the program did not run.
    pub error: Option<Value>,
}

impl ProgramEnd {
    /// The exit code of the contract.
    pub fn code(&self) -> u8 {
        if let Some(error) = &self.error
            && error["code"] == "run.spawn_failed"
        {
            let is_missing = error["details"]["errno"] == "ENOENT";
            return if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
        }
        match self.limit.as_deref() {
            Some("wall_time" | "cpu_time") => return TIME_LIMIT,
            Some("memory" | "output") => return OTHER_LIMIT,
            // The sandbox refused a call; the program's own exit code stands.
            _ if self.timed_out => return TIME_LIMIT,
            _ => {}
        }
        let by_signal = self.signal.map(|signal| BY_SIGNAL.saturating_add(signal));
        let own = self.exit_code.and_then(|code| u8::try_from(code).ok());
        by_signal.or(own).unwrap_or(SANDBOX)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_end_has_the_code_of_exec() {
        let spawn = |errno: &str| {
            let error = json!({"code": "run.spawn_failed", "details": {"errno": errno}});
            json!({"outcome": "not_started", "exit_code": -1, "error": error})
        };
        for (end, code) in [
            (json!({"outcome": "exited", "exit_code": 0, "limit": null}), 0),
            (json!({"outcome": "exited", "exit_code": 255}), 255),
            (json!({"outcome": "signaled", "exit_code": -1, "signal": 9}), 137),
            (json!({"exit_code": -1, "signal": 9, "limit": "wall_time", "timed_out": true}), 124),
            (json!({"exit_code": -1, "signal": null, "timed_out": true}), 124),
            (json!({"exit_code": -1, "signal": 24, "limit": "cpu_time"}), 124),
            (json!({"exit_code": -1, "signal": 9, "limit": "memory"}), 123),
            (json!({"exit_code": 2, "limit": "processes"}), 2),
            (json!({"exit_code": 28, "limit": "disk"}), 28),
            (json!({"outcome": "cancelled", "exit_code": -1}), 125),
            (
                json!({"outcome": "not_started", "exit_code": -1, "error": {"code": "sandbox.failed"}}),
                125,
            ),
            (spawn("ENOENT"), 127),
            (spawn("EACCES"), 126),
        ] {
            let parsed: ProgramEnd = serde_json::from_value(end.clone()).unwrap();
            assert_eq!(parsed.code(), code, "{end}");
        }
    }
}
