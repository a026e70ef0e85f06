//! Parses the query of a list request.

use std::collections::BTreeSet;

use crate::case::service::{CaseRunQuery, CaseRunStatus, CaseRunsError};
use crate::http::request::percent_decode;

/// The default number of runs per page.
const LIMIT: usize = 100;
/// The maximum number of runs per page.
const LIMIT_MAX: usize = 1000;
/// The maximum length of a cursor in bytes; ours are short.
const CURSOR_BYTES_MAX: usize = 512;

/// Parses `query`, without its question mark.
pub fn parse(query: &str) -> Result<CaseRunQuery, CaseRunsError> {
    let mut asked = CaseRunQuery { limit: LIMIT, ..CaseRunQuery::default() };
    let mut seen = BTreeSet::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key).ok_or_else(|| CaseRunsError::invalid("", "malformed"))?;
        let fault = |message: &str| CaseRunsError::invalid(key.as_str(), message);
        let value = percent_decode(value).ok_or_else(|| fault("malformed"))?;
        if !seen.insert(key.clone()) {
            return Err(fault("there twice"));
        }
        match key.as_str() {
            "status" => {
                let status = CaseRunStatus::parse(&value);
                let wanted = "want queued, running, done or canceled";
                asked.status = Some(status.ok_or_else(|| fault(wanted))?);
            }
            "limit" => {
                asked.limit =
                    limit(&value).ok_or_else(|| fault("want a whole number from 1 to 1000"))?;
            }
            "cursor" if (1..=CURSOR_BYTES_MAX).contains(&value.len()) => {
                asked.cursor = Some(value);
            }
            "cursor" => return Err(fault("want a next_cursor")),
            _ => return Err(fault("unknown; want status, limit or cursor")),
        }
    }
    Ok(asked)
}

fn limit(text: &str) -> Option<usize> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = is_number.then(|| text.parse().ok())??;
    (1..=LIMIT_MAX).contains(&limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_each_known_parameter_at_most_once() {
        let all = CaseRunQuery { limit: 100, ..CaseRunQuery::default() };
        let done = Some(CaseRunStatus::Done);
        for (query, asked) in [
            ("", all.clone()),
            ("limit=1000", CaseRunQuery { limit: 1000, ..all.clone() }),
            (
                "cursor=a%3D&st%61tus=done",
                CaseRunQuery { status: done, cursor: Some("a=".into()), ..all },
            ),
        ] {
            assert_eq!(parse(query), Ok(asked), "{query}");
        }
        let long = format!("cursor={}", "x".repeat(CURSOR_BYTES_MAX + 1));
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=+1", "limit"),
            ("limit=1&limit=1", "limit"),
            ("status=completed", "status"),
            ("cursor=", "cursor"),
            ("cursor=%ff", "cursor"),
            (&long, "cursor"),
            ("page=2", "page"),
            ("%=1", ""),
        ] {
            let error = parse(query).unwrap_err();
            assert_eq!(error.details()["field"], field, "{query}");
        }
    }
}
