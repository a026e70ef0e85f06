//! `cofferdam job status`, `result`, `list` and `cancel`: queries about existing jobs.

use clap::Args;
use serde::Serialize;

use super::failure::JobFailure;
use super::output::print_json;
use super::target::Target;
use crate::job::JobQuery;
use cofferdam_core::job::{JobError, JobId, JobLine, JobStatus, LiveJob};

/// The default length of a list.
const LIMIT: u16 = 100;
/// The maximum length of a list.
const LIMIT_MAX: i64 = 1000;

const STATUS_EXAMPLES: &str = "\
Examples:
  cofferdam job status job_1
  cofferdam job status job_1 --server http://127.0.0.1:4040 --token-file token

Exit codes: 0 printed; 1 no such job, or no response; 2 usage";

const RESULT_EXAMPLES: &str = "\
Examples:
  cofferdam job result job_1 | jq -r .stdout.text
  cofferdam job result job_1 --store-dir runs

Exit codes: 0 printed, however the job ended; 1 no such job, or it has not ended; 2 usage";

const CANCEL_EXAMPLES: &str = "\
Examples:
  cofferdam job cancel job_1
  cofferdam job cancel job_1 --server http://127.0.0.1:4040

Does not wait for the end: a running job ends within a second.
Exit codes: 0 requested; 1 no such job, or it has ended; 2 usage";

const LIST_EXAMPLES: &str = "\
Examples:
  cofferdam job list --status failed
  cofferdam job list --limit 10 --server http://127.0.0.1:4040

If next_cursor is not null, there are more jobs: pass it as --cursor.
Exit codes: 0 printed; 1 no response, or no store; 2 usage";

/// Prints the status of a job.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct StatusCommand {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Prints the result of a job that has ended.
#[derive(Debug, Args)]
#[command(after_help = RESULT_EXAMPLES)]
pub struct ResultCommand {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Requests the cancellation of a job.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub struct CancelCommand {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Lists jobs, newest first.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListCommand {
    /// Only jobs with this status, such as completed or running
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<JobStatus>,
    /// The maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = LIMIT,
          value_parser = clap::value_parser!(u16).range(1..=LIMIT_MAX))]
    limit: u16,
    /// Continue after an earlier list, with its next_cursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// The summary of a job; for a live job, as a service responds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum JobSummary {
    Live(LiveJob),
    Ended(JobLine),
}

impl From<JobLine> for JobSummary {
    fn from(line: JobLine) -> Self {
        if line.status.is_terminal() {
            return Self::Ended(line);
        }
        let JobLine { job_id, status, queued_at, started_at, .. } = line;
        Self::Live(LiveJob { job_id, status, queued_at, started_at })
    }
}

impl StatusCommand {
    /// Prints the response.
    pub fn run(self) -> Result<u8, JobFailure> {
        let id = parse_id(&self.id)?;
        print_json(&JobSummary::from(self.target.records()?.line(&id)?))?;
        Ok(0)
    }
}

impl ResultCommand {
    /// Prints the response.
    pub fn run(self) -> Result<u8, JobFailure> {
        let id = parse_id(&self.id)?;
        print_json(&self.target.records()?.result(&id)?)?;
        Ok(0)
    }
}

impl CancelCommand {
    /// Requests the cancellation.
    pub fn run(self) -> Result<u8, JobFailure> {
        let id = parse_id(&self.id)?;
        print_json(&self.target.records()?.cancel(&id)?)?;
        Ok(0)
    }
}

impl ListCommand {
    /// Prints the response.
    pub fn run(self) -> Result<u8, JobFailure> {
        let Self { status, limit, cursor, target } = self;
        let asked = JobQuery { status, limit: limit.into(), cursor };
        print_json(&target.records()?.list(&asked)?)?;
        Ok(0)
    }
}

/// Parses a job id. An invalid id is the id of no job.
pub fn parse_id(text: &str) -> Result<JobId, JobFailure> {
    Ok(JobId::parse(text).map_err(|_| JobError::not_found())?)
}

fn parse_status(text: &str) -> Result<JobStatus, String> {
    JobStatus::parse(text).ok_or_else(|| {
        let words = JobStatus::ALL.map(JobStatus::word);
        format!("want one of {}", words.join(", "))
    })
}
