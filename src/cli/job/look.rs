//! `cofferdam job status`, `result`, `list` and `cancel`: what is asked of jobs that are there.

use clap::Args;
use serde::Serialize;

use super::fault::Fault;
use super::output::print;
use super::place::Place;
use crate::job::JobQuery;
use cofferdam_core::job::{JobError, JobId, JobLine, JobStatus, LiveJob};

/// How many jobs a list has where nothing is said.
const LIMIT: u16 = 100;
/// How many it may have.
const LIMIT_MAX: i64 = 1000;

const STATUS_EXAMPLES: &str = "\
Examples:
  cofferdam job status job_1
  cofferdam job status job_1 --server http://127.0.0.1:4040 --token-file token

Exit codes: 0 told; 1 no such job, or no answer; 2 usage";

const RESULT_EXAMPLES: &str = "\
Examples:
  cofferdam job result job_1 | jq -r .stdout.text
  cofferdam job result job_1 --store-dir runs

Exit codes: 0 told, however the job ended; 1 no such job, or not over yet; 2 usage";

const CANCEL_EXAMPLES: &str = "\
Examples:
  cofferdam job cancel job_1
  cofferdam job cancel job_1 --server http://127.0.0.1:4040

Asks for the end and does not wait for it: a job that runs is over within a second.
Exit codes: 0 asked; 1 no such job, or it is over; 2 usage";

const LIST_EXAMPLES: &str = "\
Examples:
  cofferdam job list --status failed
  cofferdam job list --limit 10 --server http://127.0.0.1:4040

Where next_cursor is not null there are more: --cursor takes it.
Exit codes: 0 told; 1 no answer, or no store; 2 usage";

/// Says where a job is.
#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub struct Status {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    place: Place,
}

/// Prints the result of a job that is over.
#[derive(Debug, Args)]
#[command(after_help = RESULT_EXAMPLES)]
pub struct ShowResult {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    place: Place,
}

/// Asks for the end of a job.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub struct Cancel {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    place: Place,
}

/// Lists jobs, the newest first.
#[derive(Debug, Args)]
#[command(after_help = LIST_EXAMPLES)]
pub struct List {
    /// Only those in this state, as completed or running
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<JobStatus>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = LIMIT,
          value_parser = clap::value_parser!(u16).range(1..=LIMIT_MAX))]
    limit: u16,
    /// After those of an earlier list, whose next_cursor this is
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// What is told of a job in short: of one that is not over, as a service tells it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Line {
    Live(LiveJob),
    Ended(JobLine),
}

impl From<JobLine> for Line {
    fn from(line: JobLine) -> Self {
        if line.status.is_terminal() {
            return Self::Ended(line);
        }
        let JobLine { job_id, status, queued_at, started_at, .. } = line;
        Self::Live(LiveJob { job_id, status, queued_at, started_at })
    }
}

impl Status {
    /// Prints it.
    pub fn run(self) -> Result<u8, Fault> {
        let id = named(&self.id)?;
        print(&Line::from(self.place.records()?.line(&id)?))?;
        Ok(0)
    }
}

impl ShowResult {
    /// Prints it.
    pub fn run(self) -> Result<u8, Fault> {
        let id = named(&self.id)?;
        print(&self.place.records()?.result(&id)?)?;
        Ok(0)
    }
}

impl Cancel {
    /// Asks for it.
    pub fn run(self) -> Result<u8, Fault> {
        let id = named(&self.id)?;
        print(&self.place.records()?.cancel(&id)?)?;
        Ok(0)
    }
}

impl List {
    /// Prints it.
    pub fn run(self) -> Result<u8, Fault> {
        let Self { status, limit, cursor, place } = self;
        let asked = JobQuery { status, limit: limit.into(), cursor };
        print(&place.records()?.list(&asked)?)?;
        Ok(0)
    }
}

/// No job has a name that is none.
pub fn named(text: &str) -> Result<JobId, Fault> {
    Ok(JobId::parse(text).map_err(|_| JobError::not_found())?)
}

fn parse_status(text: &str) -> Result<JobStatus, String> {
    JobStatus::parse(text).ok_or_else(|| {
        let words = JobStatus::ALL.map(JobStatus::word);
        format!("want one of {}", words.join(", "))
    })
}
