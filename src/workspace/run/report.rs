//! The result of a program, as every interface answers it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::egress::EgressRecord;
use cofferdam_core::job::TextEncoding;
use cofferdam_core::{CapturedStream, Enforced, LimitKind, Outcome, RunReport, Usage};

/// The word for a program that did not start.
const NOT_STARTED: &str = "not_started";

/// The result of a program, keys in the order of the contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramReport {
    /// The kept output, as `encoding` says.
    pub stdout: String,
    /// The kept errors, as `encoding` says.
    pub stderr: String,
    /// How both are written: as text, or in base64 if one is not UTF-8.
    pub encoding: TextEncoding,
    /// The program's own, or -1.
    pub exit_code: i32,
    /// How long it ran, milliseconds.
    pub duration_ms: u64,
    /// Whether its time was over.
    pub timed_out: bool,
    /// Bytes that it wrote to stdout.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to stderr.
    pub stderr_bytes: u64,
    /// Whether `stdout` is only the beginning.
    pub stdout_truncated: bool,
    /// Whether `stderr` is only the beginning.
    pub stderr_truncated: bool,
    /// The directory of its own, relative to the workspace.
    pub run_dir: Option<String>,
    /// Why it did not start.
    pub error: Option<EngineError>,
    /// How it ended, in one word.
    pub outcome: &'static str,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The limit that it met.
    pub limit: Option<&'static str>,
    /// What it used.
    pub usage: Usage,
    /// The controls that it ran under.
    pub enforced: Enforced,
    /// The controls that this host lacks, with the reasons.
    pub not_enforced: Vec<String>,
    /// What it asked to reach, and what became of it.
    pub egress: Vec<EgressRecord>,
}

impl ProgramReport {
    /// The result of a program that ran.
    pub fn of(report: RunReport, run_dir: Option<String>) -> Self {
        let RunReport { outcome, stdout, stderr, usage, enforced, not_enforced, .. } = report;
        let (encoding, [stdout_text, stderr_text]) = texts([&stdout, &stderr]);
        let exit_code = match outcome {
            Outcome::Exited { code } | Outcome::LimitHit { code: Some(code), .. }
                if outcome.signal().is_none() =>
            {
                i32::from(code)
            }
            _ => -1,
        };
        Self {
            stdout: stdout_text,
            stderr: stderr_text,
            encoding,
            exit_code,
            duration_ms: usage.wall_ms,
            timed_out: outcome.limit() == Some(LimitKind::WallTime),
            stdout_bytes: stdout.bytes_total,
            stderr_bytes: stderr.bytes_total,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
            run_dir,
            error: None,
            outcome: outcome.word(),
            signal: outcome.signal(),
            limit: outcome.limit().map(LimitKind::word),
            usage,
            enforced,
            not_enforced,
            egress: Vec::new(),
        }
    }

    /// The result of a program that `exec` refused with `errno`.
    pub fn not_started(
        cmd: &str,
        errno: i32,
        enforced: Enforced,
        not_enforced: Vec<String>,
    ) -> Self {
        Self {
            stdout: String::new(),
            stderr: String::new(),
            encoding: TextEncoding::Utf8,
            exit_code: -1,
            duration_ms: 0,
            timed_out: false,
            stdout_bytes: 0,
            stderr_bytes: 0,
            stdout_truncated: false,
            stderr_truncated: false,
            run_dir: None,
            error: Some(spawn_failed(cmd, errno)),
            outcome: NOT_STARTED,
            signal: None,
            limit: None,
            usage: Usage {
                wall_ms: 0,
                cpu_ms: 0,
                memory_peak_bytes: 0,
                memory_peak_source: "rusage",
                processes_peak: None,
                oom_kills: None,
                stdout_bytes: 0,
                stderr_bytes: 0,
            },
            enforced,
            not_enforced,
            egress: Vec::new(),
        }
    }

    /// The result of a program without a sandbox.
    pub fn failed(error: EngineError) -> Self {
        let none = Self::not_started("", 0, Enforced::default(), Vec::new());
        Self { error: Some(error), ..none }
    }

    /// The signal that ended the program.
    pub fn signal(&self) -> Option<i32> {
        self.signal
    }

    /// The exit code: the program's own, or -1.
    pub fn exit_code(&self) -> i32 {
        self.exit_code
    }

    /// The limit that the program met.
    pub fn limit(&self) -> Option<&'static str> {
        self.limit
    }

    /// How long it ran, milliseconds.
    pub fn duration_ms(&self) -> u64 {
        self.duration_ms
    }

    /// Why it did not start.
    pub fn error(&self) -> Option<&EngineError> {
        self.error.as_ref()
    }

    /// How `stdout` and `stderr` are written, and both.
    pub fn into_streams(self) -> (TextEncoding, [String; 2]) {
        (self.encoding, [self.stdout, self.stderr])
    }

    /// Whether the program was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.outcome == Outcome::Cancelled.word()
    }

    /// Whether the program met its time limit.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}

/// The error of a program that `exec` refused with `errno`.
pub fn spawn_failed(cmd: &str, errno: i32) -> EngineError {
    let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
    EngineError::new(EngineCode::SpawnFailed, format!("{cmd}: {name}")).with("errno", name)
}

/// The bytes of both streams, as text if both are text, otherwise in base64.
pub fn texts(streams: [&CapturedStream; 2]) -> (TextEncoding, [String; 2]) {
    let as_text = streams.map(|stream| std::str::from_utf8(stream.whole_characters()));
    match as_text {
        [Ok(stdout), Ok(stderr)] => (TextEncoding::Utf8, [stdout, stderr].map(str::to_owned)),
        _ => (TextEncoding::Base64, streams.map(|stream| STANDARD.encode(&stream.bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::Timings;

    fn report(outcome: Outcome, stdout: &[u8], truncated: bool) -> ProgramReport {
        let stdout = CapturedStream { bytes: stdout.to_vec(), bytes_total: 9, truncated };
        let not_started = ProgramReport::not_started("x", 2, Enforced::default(), vec![]);
        let report = RunReport {
            outcome,
            stdout,
            stderr: CapturedStream::default(),
            usage: not_started.usage,
            enforced: Enforced::default(),
            not_enforced: vec![],
            timings: Timings::default(),
            standby: false,
        };
        ProgramReport::of(report, Some("runs/run_1".into()))
    }

    #[test]
    fn only_a_program_that_exited_has_an_exit_code_of_its_own() {
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, code, signal, word) in [
            (Outcome::Exited { code: 3 }, 3, None, "exited"),
            (Outcome::Signaled { signal: 11 }, -1, Some(11), "signaled"),
            (limit(LimitKind::WallTime, None), -1, None, "timed_out"),
            (limit(LimitKind::Memory, Some(137)), -1, Some(9), "memory_limit"),
            (limit(LimitKind::Disk, Some(1)), 1, None, "disk_limit"),
            (Outcome::Cancelled, -1, None, "cancelled"),
        ] {
            let report = report(outcome, b"", false);
            let told = (report.exit_code, report.signal, report.outcome);
            assert_eq!(told, (code, signal, word));
            assert_eq!(report.timed_out, word == "timed_out");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_in_base64_and_a_cut_splits_no_character() {
        let ended = Outcome::Exited { code: 0 };
        let told = |bytes: &[u8], truncated| {
            let report = report(ended, bytes, truncated);
            (report.encoding, report.stdout)
        };
        assert_eq!(told("é".as_bytes(), false), (TextEncoding::Utf8, "é".to_owned()));
        assert_eq!(told(b"a\xC3", true), (TextEncoding::Utf8, "a".to_owned()));
        assert_eq!(told(b"a\xC3", false), (TextEncoding::Base64, "YcM=".to_owned()));
    }

    #[test]
    fn a_program_that_does_not_start_has_an_error_with_its_code() {
        let report = ProgramReport::not_started("nope", libc::ENOENT, Enforced::default(), vec![]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["exit_code"], &json["outcome"]), (&(-1).into(), &"not_started".into()));
        assert_eq!(json["error"]["code"], "run.spawn_failed");
        assert_eq!(json["error"]["details"]["errno"], "ENOENT");
    }
}
