//! Parses the query of a list request.

use std::collections::BTreeSet;

use crate::http::request::percent_decode;
use crate::job::JobQuery;
use cofferdam_core::job::{ErrorCode, JobError, JobStatus};

/// The default number of jobs per page.
const LIMIT: usize = 100;
/// The maximum number of jobs per page.
const LIMIT_MAX: usize = 1000;
/// The maximum length of a cursor in bytes; ours are short.
const CURSOR_BYTES_MAX: usize = 512;

/// Parses `query`, without its question mark.
pub fn parse(query: &str) -> Result<JobQuery, JobError> {
    let mut request = JobQuery { limit: LIMIT, ..JobQuery::default() };
    let mut seen = BTreeSet::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key).ok_or_else(|| invalid("", "malformed"))?;
        let value = percent_decode(value).ok_or_else(|| invalid(&key, "malformed"))?;
        if !seen.insert(key.clone()) {
            return Err(invalid(&key, "there twice"));
        }
        match key.as_str() {
            "status" => {
                let status = JobStatus::parse(&value);
                request.status = Some(status.ok_or_else(|| invalid(&key, "want a job's status"))?);
            }
            "limit" => {
                let limit = limit(&value);
                request.limit =
                    limit.ok_or_else(|| invalid(&key, "want a whole number from 1 to 1000"))?;
            }
            "cursor" if (1..=CURSOR_BYTES_MAX).contains(&value.len()) => {
                request.cursor = Some(value);
            }
            "cursor" => return Err(invalid(&key, "want a next_cursor")),
            _ => return Err(invalid(&key, "unknown; want status, limit or cursor")),
        }
    }
    Ok(request)
}

fn limit(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = is_number.then(|| text.parse().ok())??;
    (1..=LIMIT_MAX).contains(&limit).then_some(limit)
}

fn invalid(key: &str, fault: &str) -> JobError {
    JobError::new(ErrorCode::InvalidRequest, format!("{key}: {fault}")).with("path", key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_each_known_parameter_at_most_once() {
        let all = JobQuery { limit: 100, ..JobQuery::default() };
        for (query, request) in [
            ("", all.clone()),
            ("&", all.clone()),
            ("limit=1", JobQuery { limit: 1, ..all.clone() }),
            ("limit=1000", JobQuery { limit: 1000, ..all.clone() }),
            ("status=timed_out", JobQuery { status: Some(JobStatus::TimedOut), ..all.clone() }),
            ("st%61tus=queued", JobQuery { status: Some(JobStatus::Queued), ..all.clone() }),
            ("cursor=a%3Db+c%2B", JobQuery { cursor: Some("a=b+c+".into()), ..all.clone() }),
            (
                "cursor=c&status=failed&limit=7",
                JobQuery { status: Some(JobStatus::Failed), limit: 7, cursor: Some("c".into()) },
            ),
        ] {
            assert_eq!(parse(query), Ok(request), "{query}");
        }
        let long = format!("cursor={}", "x".repeat(CURSOR_BYTES_MAX + 1));
        for (query, path) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=+1", "limit"),
            ("limit=", "limit"),
            ("limit", "limit"),
            ("limit=99999999999999999999", "limit"),
            ("limit=1&limit=1", "limit"),
            ("status=", "status"),
            ("status=Queued", "status"),
            ("status=done", "status"),
            ("cursor=", "cursor"),
            ("cursor=%ff", "cursor"),
            (&long, "cursor"),
            ("page=2", "page"),
            ("Limit=1", "Limit"),
            ("=1", ""),
            ("%=1", ""),
        ] {
            let error = parse(query).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidRequest, "{query}");
            assert_eq!(error.details["path"], path, "{query}");
        }
    }
}
