//! How the end of a job becomes that of an agent. Pure.

use crate::case::harness::end::{HarnessEnd, HarnessError, LATE, shown};
use cofferdam_core::job::{ErrorCode, JobError, JobStatus, RunJobResult};
use cofferdam_core::{LimitKind, Outcome};

/// The step of a sandbox that enters the working directory.
const WORKDIR_STEP: &str = "workdir";

/// The end of the agent, whose job worked for `wall_ms`.
///
/// # Errors
/// The job could not be run.
pub fn ended(result: &RunJobResult, wall_ms: u64) -> Result<HarnessEnd, HarnessError> {
    let outcome = outcome(result).ok_or_else(|| not_run(result.error.as_ref()))?;
    let mut end = HarnessEnd::of(outcome, wall_ms, String::new());
    for stream in [&result.stdout, &result.stderr] {
        end.add_output(&shown(stream));
    }
    Ok(end)
}

/// How the program ended; `None` if there was none.
fn outcome(result: &RunJobResult) -> Option<Outcome> {
    match result.status {
        JobStatus::TimedOut => Some(LATE),
        JobStatus::Canceled => Some(Outcome::Cancelled),
        JobStatus::Completed | JobStatus::Failed => {
            let limit = result.error.as_ref().and_then(limit_of);
            let limit = limit.map(|kind| Outcome::LimitHit { kind, code: None });
            let signal = result.signal.map(|signal| Outcome::Signaled { signal });
            let exit = result.exit_code.map(|code| Outcome::Exited { code });
            limit.or(signal).or(exit)
        }
        _ => None,
    }
}

fn limit_of(error: &JobError) -> Option<LimitKind> {
    use LimitKind::{CpuTime, Disk, Memory, Output, Processes, WallTime};
    let word = error.details.get("limit").filter(|_| error.code == ErrorCode::LimitExceeded)?;
    let kinds = [WallTime, CpuTime, Memory, Processes, Disk, Output];
    kinds.into_iter().find(|kind| word.as_str() == Some(kind.word()))
}

/// The error of a job that has not run. It begins with the field that is the cause, if one is.
pub fn not_run(error: Option<&JobError>) -> HarnessError {
    let Some(error) = error else { return HarnessError::failed("the job has no result") };
    let words = format!("{}: {}", error.code.word(), error.message);
    HarnessError::failed(match field(error) {
        Some(field) => format!("{field}: {words}"),
        None => words,
    })
}

/// The field of the request that is the cause of `error`.
fn field(error: &JobError) -> Option<String> {
    let detail = |name: &str| error.details.get(name).and_then(serde_json::Value::as_str);
    let is_workdir = || detail("step").is_some_and(|step| step.starts_with(WORKDIR_STEP));
    let field = match error.code {
        ErrorCode::CommandDenied => "policy.allowed_commands",
        ErrorCode::ShellDenied => "policy.allow_shell",
        ErrorCode::EnvDenied => return Some(format!("command.env.{}", detail("key")?)),
        ErrorCode::ArtifactDenied => "policy.artifacts.include",
        ErrorCode::NetworkDenied | ErrorCode::SecretDenied => "policy.network",
        ErrorCode::BackendUnavailable if detail("control") == Some("network") => "policy.network",
        ErrorCode::BackendUnavailable if detail("control").is_some() => "policy.require_enforced",
        ErrorCode::BackendUnavailable => "backend.kind",
        ErrorCode::BackendSetupFailed if is_workdir() => "command.cwd",
        ErrorCode::BackendSetupFailed if detail("limit").is_some() => "limits",
        ErrorCode::SpawnFailed => "command.argv",
        // Their words begin with it.
        _ => return None,
    };
    Some(field.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kept_a_job_from_its_work_begins_with_its_field() {
        let error = |code| JobError::new(code, "words");
        for (error, wanted) in [
            (
                error(ErrorCode::CommandDenied),
                "policy.allowed_commands: policy.command_denied: words",
            ),
            (
                error(ErrorCode::EnvDenied).with("key", "A"),
                "command.env.A: policy.env_denied: words",
            ),
            (error(ErrorCode::BackendUnavailable), "backend.kind: backend.unavailable: words"),
            (
                error(ErrorCode::BackendUnavailable).with("control", "memory"),
                "policy.require_enforced: backend.unavailable: words",
            ),
            (
                error(ErrorCode::BackendSetupFailed).with("step", "workdir /workspace/a"),
                "command.cwd: backend.setup_failed: words",
            ),
            (error(ErrorCode::IoFailed), "run.io_failed: words"),
        ] {
            assert_eq!(not_run(Some(&error)).message, wanted);
        }
    }
}
