//! A process in an answer.

use serde::Serialize;

use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::values::utc::rfc3339;
use cofferdam_sandbox::engine::SharedProcess;

/// A process of a workspace, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessView {
    pid: i32,
    ppid: i32,
    args: Vec<String>,
    started_at: String,
    cpu_ms: u64,
    memory_bytes: u64,
    session_id: Option<String>,
    run_dir: Option<String>,
}

impl ProcessView {
    /// The process as clients see it; `session_of` names the session with that control.
    pub fn of(
        process: SharedProcess,
        session_of: impl FnOnce(&RunControl) -> Option<String>,
    ) -> Self {
        let SharedProcess { pid, ppid, args, started_at, cpu, memory_bytes, label } = process;
        Self {
            pid,
            ppid,
            args,
            started_at: rfc3339(started_at),
            cpu_ms: u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX),
            memory_bytes,
            session_id: label.control.as_ref().and_then(session_of),
            run_dir: label.run_dir,
        }
    }
}
