//! The result of a command.

use serde::Serialize;

use super::plan::CellExecutorKind;
use super::request::ExecRequest;
use cofferdam_core::job::StreamRecord;
use cofferdam_core::{LimitKind, Outcome};

/// The exit code of a program that is not found.
const NOT_FOUND: u8 = 127;
/// The exit code of a program that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// What a command did, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecResult {
    /// The words of the request.
    pub argv: Vec<String>,
    /// Whether a shell ran them.
    pub shell: bool,
    /// The working directory of the request.
    pub cwd: String,
    /// How it ended, a word of `X-Run-Outcome`.
    pub outcome: &'static str,
    /// Its exit code, if it exited.
    pub exit_code: Option<u8>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// The limit that ended it, if one did.
    pub limit: Option<&'static str>,
    /// What it wrote to stdout.
    pub stdout: StreamRecord,
    /// What it wrote to stderr.
    pub stderr: StreamRecord,
    /// Time from its start to its end, milliseconds; null if there was nothing to execute.
    pub wall_ms: Option<u64>,
    /// CPU time of all its processes, milliseconds.
    pub cpu_ms: Option<u64>,
    /// Peak memory, bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Which executor ran it.
    pub executor: CellExecutorKind,
    /// The controls that were not enforced, each as `name: reason`.
    pub not_enforced: Vec<String>,
}

/// What a command used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StepUsage {
    pub(super) wall_ms: Option<u64>,
    pub(super) cpu_ms: Option<u64>,
    pub(super) memory_peak_bytes: Option<u64>,
}

/// Which executor ran a command, and what it did not enforce.
#[derive(Debug, Clone)]
pub(super) struct StepControls {
    pub(super) executor: CellExecutorKind,
    pub(super) not_enforced: Vec<String>,
}

impl ExecResult {
    /// The result of `request`.
    pub(super) fn of(
        request: &ExecRequest,
        outcome: Outcome,
        (stdout, stderr): (StreamRecord, StreamRecord),
        usage: StepUsage,
        controls: StepControls,
    ) -> Self {
        let exit_code = exit_code(outcome);
        Self {
            argv: request.argv.clone(),
            shell: request.shell,
            cwd: request.cwd().to_owned(),
            outcome: outcome.word(),
            exit_code,
            signal: if exit_code.is_none() { outcome.signal() } else { None },
            limit: outcome.limit().map(LimitKind::word),
            stdout,
            stderr,
            wall_ms: usage.wall_ms,
            cpu_ms: usage.cpu_ms,
            memory_peak_bytes: usage.memory_peak_bytes,
            executor: controls.executor,
            not_enforced: controls.not_enforced,
        }
    }

    /// The result of a command that exec refused with `errno`, as a shell tells it.
    pub(super) fn not_executed(request: &ExecRequest, errno: i32, controls: StepControls) -> Self {
        let is_missing = matches!(errno, libc::ENOENT | libc::ENOTDIR);
        let code = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
        let nothing = || StreamRecord::empty();
        let outcome = Outcome::Exited { code };
        Self::of(request, outcome, (nothing(), nothing()), StepUsage::default(), controls)
    }
}

/// The exit code of a program that exited by itself.
fn exit_code(outcome: Outcome) -> Option<u8> {
    match outcome {
        Outcome::Exited { code } => Some(code),
        Outcome::LimitHit { kind: LimitKind::Processes | LimitKind::Disk, code } => code,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controls() -> StepControls {
        let not_enforced = vec!["disk: host".to_owned()];
        StepControls { executor: CellExecutorKind::Local, not_enforced }
    }

    fn result(outcome: Outcome) -> ExecResult {
        let request = ExecRequest::new(["a", "b c"]);
        let streams = (StreamRecord::empty(), StreamRecord::empty());
        let usage = StepUsage { wall_ms: Some(1), cpu_ms: Some(2), memory_peak_bytes: Some(3) };
        ExecResult::of(&request, outcome, streams, usage, controls())
    }

    #[test]
    fn a_result_has_the_keys_of_the_contract_in_their_order() {
        let text = serde_json::to_string(&result(Outcome::Exited { code: 3 })).unwrap();
        let sha256 = StreamRecord::empty().sha256;
        let stream = format!(
            r#"{{"text":"","truncated":false,"bytes":0,"sha256":"{}","encoding":"utf-8"}}"#,
            sha256.as_str()
        );
        let wanted = format!(
            concat!(
                r#"{{"argv":["a","b c"],"shell":false,"cwd":".","outcome":"exited","exit_code":3,"#,
                r#""signal":null,"limit":null,"stdout":{0},"stderr":{0},"wall_ms":1,"cpu_ms":2,"#,
                r#""memory_peak_bytes":3,"executor":"local","not_enforced":["disk: host"]}}"#,
            ),
            stream
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn an_end_has_an_exit_code_or_a_signal_and_names_its_limit() {
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, wanted) in [
            (Outcome::Exited { code: 0 }, ("exited", Some(0), None, None)),
            (Outcome::Exited { code: 137 }, ("exited", Some(137), None, None)),
            (Outcome::Signaled { signal: 9 }, ("signaled", None, Some(9), None)),
            (limit(LimitKind::WallTime, None), ("timed_out", None, None, Some("wall_time"))),
            (limit(LimitKind::Memory, Some(137)), ("memory_limit", None, Some(9), Some("memory"))),
            (limit(LimitKind::Disk, Some(1)), ("disk_limit", Some(1), None, Some("disk"))),
            (Outcome::Cancelled, ("cancelled", None, None, None)),
        ] {
            let ended = result(outcome);
            assert_eq!((ended.outcome, ended.exit_code, ended.signal, ended.limit), wanted);
        }
    }

    #[test]
    fn a_program_that_is_missing_is_127_and_one_that_cannot_be_executed_126() {
        for (errno, code) in [
            (libc::ENOENT, 127),
            (libc::ENOTDIR, 127),
            (libc::EACCES, 126),
            (libc::ENOEXEC, 126),
            (libc::ELOOP, 126),
        ] {
            let ended = ExecResult::not_executed(&ExecRequest::new(["a"]), errno, controls());
            assert_eq!((ended.exit_code, ended.wall_ms), (Some(code), None), "{errno}");
        }
    }
}
