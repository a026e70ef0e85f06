//! What an answer of the endpoint means, and when to ask again (pure).

use std::time::Duration;

use serde_json::Value;

use super::text::cut;
use super::wire::{ModelReply, parse_reply};

/// How often a request is sent.
pub(super) const TRIES_MAX: u32 = 5;
/// How long to wait before the second try; twice as long before each later one.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// Bytes of an answer that an error shows.
const SHOWN_BYTES_MAX: usize = 1000;
/// Codes of the errors that the agent has brought about.
const CONTEXT_CODE: &str = "context_length_exceeded";
const FILTER_CODE: &str = "content_filter";

/// An answer of the endpoint, without the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostedAnswer {
    /// Its status.
    pub(super) status: u16,
    /// The header `Retry-After`, if there is one.
    pub(super) retry_after: Option<String>,
    /// Its body.
    pub(super) body: Vec<u8>,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerVerdict {
    /// The model has answered.
    Reply(ModelReply),
    /// The same request may succeed later.
    Again {
        /// What was wrong.
        reason: String,
        /// How long the endpoint asks to wait, if it does.
        after: Option<Duration>,
    },
    /// The conversation is longer than the model can read.
    TooLong,
    /// The endpoint's filter takes no such conversation.
    Filtered,
    /// The endpoint does not serve this harness.
    Failed(String),
}

/// Decides what `answer` means.
pub(super) fn judge(answer: &PostedAnswer) -> AnswerVerdict {
    let PostedAnswer { status, retry_after, body } = answer;
    let said = || {
        let text = cut(String::from_utf8_lossy(body).trim().to_owned(), SHOWN_BYTES_MAX);
        format!("the endpoint answered {status}: {text}")
    };
    match status {
        200 => match parse_reply(body) {
            Ok(reply) => AnswerVerdict::Reply(reply),
            Err(reason) => AnswerVerdict::Again { reason, after: None },
        },
        408 | 429 | 500..=599 => {
            let seconds = retry_after.as_deref().and_then(|text| text.trim().parse::<u64>().ok());
            AnswerVerdict::Again { reason: said(), after: seconds.map(Duration::from_secs) }
        }
        400..=499 => match error_code(body).as_deref() {
            Some(CONTEXT_CODE) => AnswerVerdict::TooLong,
            Some(FILTER_CODE) => AnswerVerdict::Filtered,
            _ => AnswerVerdict::Failed(said()),
        },
        300..=399 => AnswerVerdict::Failed(format!(
            "the endpoint answered {status}: redirects are not followed"
        )),
        _ => AnswerVerdict::Failed(said()),
    }
}

/// `error.code` of an answer.
fn error_code(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    Some(body.get("error")?.get("code")?.as_str()?.to_owned())
}

/// How long to wait after try number `tried`, which counts from 1.
pub(super) fn wait_after(tried: u32, after: Option<Duration>) -> Duration {
    let doubled = WAIT_FIRST.saturating_mul(1 << tried.saturating_sub(1).min(TRIES_MAX));
    after.unwrap_or(doubled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, retry_after: Option<&str>, body: &str) -> AnswerVerdict {
        judge(&PostedAnswer {
            status,
            retry_after: retry_after.map(str::to_owned),
            body: body.as_bytes().to_vec(),
        })
    }

    #[test]
    fn the_status_decides_whether_to_ask_again() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (status, retry_after, wanted) in [
            (429, None, Some(None)),
            (429, Some("7"), Some(seconds(7))),
            (429, Some(" 0 "), Some(seconds(0))),
            (503, Some("Wed, 21 Oct 2015 07:28:00 GMT"), Some(None)),
            (500, Some("-1"), Some(None)),
            (599, None, Some(None)),
            (408, None, Some(None)),
            (200, None, Some(None)),
            (400, None, None),
            (401, Some("7"), None),
            (404, None, None),
            (302, None, None),
            (204, None, None),
            (101, None, None),
        ] {
            let again = match judged(status, retry_after, "no completion") {
                AnswerVerdict::Again { after, .. } => Some(after),
                AnswerVerdict::Failed(words) => {
                    assert!(words.contains(&status.to_string()), "{words}");
                    None
                }
                other => panic!("{status}: {other:?}"),
            };
            assert_eq!(again, wanted, "{status}");
        }
    }

    #[test]
    fn what_the_agent_brought_about_is_its_own_end() {
        for (body, wanted) in [
            (r#"{"error":{"code":"context_length_exceeded"}}"#, Some(AnswerVerdict::TooLong)),
            (r#"{"error":{"code":"content_filter"}}"#, Some(AnswerVerdict::Filtered)),
            (r#"{"error":{"code":"invalid_api_key"}}"#, None),
            (r#"{"error":{"code":null}}"#, None),
            ("not JSON", None),
        ] {
            let verdict = judged(400, None, body);
            match wanted {
                Some(wanted) => assert_eq!(verdict, wanted),
                None => assert!(matches!(verdict, AnswerVerdict::Failed(_)), "{verdict:?}"),
            }
        }
    }

    #[test]
    fn waits_double_unless_the_endpoint_says_how_long() {
        let waits: Vec<u128> =
            (1..TRIES_MAX).map(|tried| wait_after(tried, None).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000]);
        assert_eq!(wait_after(4, Some(Duration::ZERO)), Duration::ZERO);
        assert!(wait_after(u32::MAX, None) <= Duration::from_secs(16));
    }
}
