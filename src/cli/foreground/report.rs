//! A finished run as JSON.

use std::borrow::Cow;

use serde::Serialize;

use cofferdam_core::egress::EgressRecord;
use cofferdam_core::{Enforced, LimitKind, Outcome, RunReport, Usage};

/// The output of `--report`, keys in this order.
#[derive(Debug, Serialize)]
pub struct RunReportJson<'a> {
    outcome: &'static str,
    exit_code: Option<u8>,
    #[serde(flatten)]
    rest: ReportFields<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    egress: Option<Vec<EgressRecord>>,
}

/// The output of `run --json`, keys in this order.
#[derive(Debug, Serialize)]
pub struct CheckReportJson<'a> {
    exit_code: Option<u8>,
    stdout: Cow<'a, str>,
    stderr: Cow<'a, str>,
    outcome: &'static str,
    #[serde(flatten)]
    rest: ReportFields<'a>,
}

#[derive(Debug, Serialize)]
struct ReportFields<'a> {
    signal: Option<i32>,
    limit: Option<&'static str>,
    usage: &'a Usage,
    enforced: &'a Enforced,
    not_enforced: &'a [String],
}

impl<'a> RunReportJson<'a> {
    /// The report of `run`. Only a program that exited has an exit code.
    pub fn of(run: &'a RunReport) -> Self {
        let exit_code = match run.outcome {
            Outcome::Exited { code } => Some(code),
            _ => None,
        };
        let (outcome, rest) = (run.outcome.word(), ReportFields::of(run));
        Self { outcome, exit_code, rest, egress: None }
    }

    /// The same with what the command asked to reach, unless it has no network.
    pub fn with_egress(self, egress: Option<Vec<EgressRecord>>) -> Self {
        Self { egress, ..self }
    }
}

impl<'a> CheckReportJson<'a> {
    /// The response of `POST /run` for `run`, followed by the report.
    pub fn of(run: &'a RunReport) -> Self {
        Self {
            exit_code: run.outcome.shell_code(),
            stdout: run.stdout.text(),
            stderr: run.stderr.text(),
            outcome: run.outcome.word(),
            rest: ReportFields::of(run),
        }
    }
}

impl<'a> ReportFields<'a> {
    fn of(run: &'a RunReport) -> Self {
        Self {
            signal: run.outcome.signal(),
            limit: run.outcome.limit().map(LimitKind::word),
            usage: &run.usage,
            enforced: &run.enforced,
            not_enforced: &run.not_enforced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{CapturedStream, Timings};

    fn run(outcome: Outcome) -> RunReport {
        let stream = |bytes: &[u8]| CapturedStream {
            bytes: bytes.to_vec(),
            bytes_total: bytes.len() as u64,
            truncated: false,
        };
        RunReport {
            outcome,
            stdout: stream(b"hi\n"),
            stderr: stream(b"\xFF"),
            usage: Usage {
                wall_ms: 1,
                cpu_ms: 2,
                memory_peak_bytes: 3,
                memory_peak_source: "cgroup2",
                processes_peak: None,
                oom_kills: Some(2),
                stdout_bytes: 3,
                stderr_bytes: 1,
            },
            enforced: Enforced {
                namespaces: vec!["pid"],
                disk: Some("tmpfs"),
                ..Enforced::default()
            },
            not_enforced: vec!["memory: no controller".to_owned()],
            timings: Timings::default(),
            standby: false,
        }
    }

    const REST: &str = r#""usage":{"wall_ms":1,"cpu_ms":2,"memory_peak_bytes":3,"memory_peak_source":"cgroup2","processes_peak":null,"oom_kills":2,"stdout_bytes":3,"stderr_bytes":1},"enforced":{"namespaces":["pid"],"seccomp":null,"memory":null,"processes":null,"disk":"tmpfs","cpu":null},"not_enforced":["memory: no controller"]}"#;

    #[test]
    fn a_report_has_the_keys_of_the_contract_in_their_order() {
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, head) in [
            (Outcome::Exited { code: 3 }, r#""exited","exit_code":3,"signal":null,"limit":null"#),
            (
                Outcome::Signaled { signal: 11 },
                r#""signaled","exit_code":null,"signal":11,"limit":null"#,
            ),
            (
                limit(LimitKind::WallTime, None),
                r#""timed_out","exit_code":null,"signal":null,"limit":"wall_time""#,
            ),
            (
                limit(LimitKind::Memory, Some(137)),
                r#""memory_limit","exit_code":null,"signal":9,"limit":"memory""#,
            ),
            (
                limit(LimitKind::Disk, Some(1)),
                r#""disk_limit","exit_code":null,"signal":null,"limit":"disk""#,
            ),
            (Outcome::Cancelled, r#""cancelled","exit_code":null,"signal":null,"limit":null"#),
        ] {
            let json = serde_json::to_string(&RunReportJson::of(&run(outcome))).unwrap();
            assert_eq!(json, format!(r#"{{"outcome":{head},{REST}"#));
        }
        let exited = run(Outcome::Exited { code: 0 });
        let report = RunReportJson::of(&exited).with_egress(Some(Vec::new()));
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.ends_with(r#","egress":[]}"#), "{json}");
    }

    #[test]
    fn a_check_is_the_response_of_the_service_and_the_report() {
        let json =
            serde_json::to_string(&CheckReportJson::of(&run(Outcome::Signaled { signal: 9 })))
                .unwrap();
        let head = r#"{"exit_code":137,"stdout":"hi\n","stderr":"�","outcome":"signaled","signal":9,"limit":null,"#;
        assert_eq!(json, format!("{head}{REST}"));
    }
}
