//! Parses the query of a list request, and names the next page.

use std::collections::BTreeSet;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::evaluation::result::{EvaluationStatus, EvaluationVerdict};
use crate::evaluation::service::{EvaluationQuery, EvaluationsError};
use crate::http::request::percent_decode;

/// The default number of evaluations per page.
const LIMIT: usize = 100;
/// The maximum number of evaluations per page.
const LIMIT_MAX: usize = 1000;
/// The maximum length of a cursor in bytes; ours are short.
const CURSOR_BYTES_MAX: usize = 512;
const STATUSES: [(&str, EvaluationStatus); 5] = [
    ("pending", EvaluationStatus::Pending),
    ("running", EvaluationStatus::Running),
    ("completed", EvaluationStatus::Completed),
    ("failed", EvaluationStatus::Failed),
    ("cancelled", EvaluationStatus::Cancelled),
];

/// Parses `query`, without its question mark.
pub fn parse(query: &str) -> Result<EvaluationQuery, EvaluationsError> {
    let mut asked = EvaluationQuery { limit: LIMIT, ..EvaluationQuery::default() };
    let mut seen = BTreeSet::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key).ok_or_else(|| EvaluationsError::invalid("", "malformed"))?;
        let fault = |message: &str| EvaluationsError::invalid(key.as_str(), message);
        let value = percent_decode(value).ok_or_else(|| fault("malformed"))?;
        if !seen.insert(key.clone()) {
            return Err(fault("there twice"));
        }
        match key.as_str() {
            "status" => {
                let known = STATUSES.iter().find(|(word, _)| *word == value);
                let words = STATUSES.map(|(word, _)| word);
                let (_, status) = known.ok_or_else(|| unknown(&key, &words))?;
                asked.status = Some(*status);
            }
            "verdict" => {
                let known = EvaluationVerdict::ALL.iter().find(|verdict| verdict.word() == value);
                let words = EvaluationVerdict::ALL.map(EvaluationVerdict::word);
                asked.verdict = Some(*known.ok_or_else(|| unknown(&key, &words))?);
            }
            "label" => {
                let label = value.split_once(':').filter(|(name, _)| !name.is_empty());
                let (name, text) = label.ok_or_else(|| fault("want name:value"))?;
                asked.label = Some((name.to_owned(), text.to_owned()));
            }
            "limit" => {
                asked.limit =
                    limit(&value).ok_or_else(|| fault("want a whole number from 1 to 1000"))?;
            }
            "cursor" if (1..=CURSOR_BYTES_MAX).contains(&value.len()) => {
                asked.cursor = Some(value);
            }
            "cursor" => return Err(fault("want the cursor of a Link")),
            _ => return Err(fault("unknown; want status, verdict, label, limit or cursor")),
        }
    }
    Ok(asked)
}

/// Returns the target of the page after the one of `asked`, as `Link` has it.
pub fn next_link(asked: &EvaluationQuery, cursor: &str) -> String {
    let mut target = format!("/evaluations?limit={}", asked.limit);
    if let Some(status) = asked.status {
        let known = STATUSES.iter().find(|(_, known)| *known == status);
        target.extend(known.map(|(word, _)| format!("&status={word}")));
    }
    target.extend(asked.verdict.map(|verdict| format!("&verdict={}", verdict.word())));
    if let Some((name, value)) = &asked.label {
        let label = format!("{name}:{value}");
        target.push_str(&format!("&label={}", encoded(&label)));
    }
    target.push_str(&format!("&cursor={}", encoded(cursor)));
    format!("<{target}>; rel=\"next\"")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn unknown(key: &str, words: &[&str]) -> EvaluationsError {
    EvaluationsError::Invalid {
        field: key.to_owned(),
        message: format!("want one of {}", words.join(", ")),
        details: json!({ "known": words }),
    }
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
        let all = EvaluationQuery { limit: 100, ..EvaluationQuery::default() };
        let label = Some(("a b".to_owned(), "c:d".to_owned()));
        for (query, expected) in [
            ("", all.clone()),
            ("&limit=1", EvaluationQuery { limit: 1, ..all.clone() }),
            ("limit=1000", EvaluationQuery { limit: 1000, ..all.clone() }),
            (
                "status=failed&verdict=no_tests",
                EvaluationQuery {
                    status: Some(EvaluationStatus::Failed),
                    verdict: Some(EvaluationVerdict::NoTests),
                    ..all.clone()
                },
            ),
            ("label=a%20b:c:d", EvaluationQuery { label, ..all.clone() }),
            ("cursor=x", EvaluationQuery { cursor: Some("x".to_owned()), ..all.clone() }),
        ] {
            assert_eq!(parse(query).unwrap(), expected, "{query}");
        }
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=", "limit"),
            ("status=done", "status"),
            ("verdict=", "verdict"),
            ("label=x", "label"),
            ("label=:x", "label"),
            ("cursor=", "cursor"),
            ("status=failed&status=failed", "status"),
            ("stat=1", "stat"),
            ("status=%ff", "status"),
        ] {
            match parse(query) {
                Err(EvaluationsError::Invalid { field: named, .. }) => {
                    assert_eq!(named, field, "{query}");
                }
                other => panic!("{query}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_next_page_is_asked_for_like_this_one() {
        let asked = parse("limit=2&label=a%26:%3e&status=running&verdict=partial").unwrap();
        let link = next_link(&asked, "c=1");
        let query = link.strip_prefix("</evaluations?").unwrap();
        let query = query.strip_suffix(">; rel=\"next\"").unwrap();
        let expected = EvaluationQuery { cursor: Some("c=1".to_owned()), ..asked };
        assert_eq!(parse(query).unwrap(), expected, "{link}");
    }
}
