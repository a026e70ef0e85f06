//! The head of a host's answer on its way to the program.

use std::sync::Arc;

use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use axum::http::response::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Version};

use super::incoming::declared_length;
use crate::egress::proxy::headers::remove_hop_by_hop;
use crate::egress::secret::SecretSearch;
use cofferdam_core::egress::EgressReason;
use cofferdam_core::weakened::{self, Wall};

/// Headers that say something of a body that may be changed.
const OF_THE_BODY: [HeaderName; 5] = [
    CONTENT_LENGTH,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
];

/// What the answer to a request may be.
#[derive(Debug, Clone)]
pub struct AnswerTerms {
    pub method: Method,
    /// What is searched for; none if no secret was sent.
    pub search: Option<Arc<SecretSearch>>,
    pub bytes_max: Option<u64>,
}

/// Makes of the `head` that a host sent the one that the program gets.
///
/// # Errors
/// The answer cannot be passed on.
pub fn pass_head(head: &mut Parts, terms: &AnswerTerms) -> Result<(), EgressReason> {
    let has_body = terms.method != Method::HEAD && may_have_body(head.status);
    if let (true, Some(bytes_max)) = (has_body, terms.bytes_max)
        && declared_length(&head.headers).is_some_and(|length| length > bytes_max)
    {
        return Err(EgressReason::BytesMax);
    }
    if !is_plainly_framed(&head.headers) {
        return Err(EgressReason::Encoding);
    }
    if head.headers.contains_key(TRANSFER_ENCODING) {
        head.headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(&mut head.headers);
    head.version = Version::HTTP_11;
    // The words of the status line are the host's; the program gets those of the standard.
    head.extensions.clear();
    if let Some(search) = &terms.search {
        if !weakened::lacks(Wall::Redaction) {
            check_searchable(head)?;
            search.redact_headers(&mut head.headers);
        }
        if has_body {
            OF_THE_BODY.iter().for_each(|name| drop(head.headers.remove(name)));
        }
    }
    Ok(())
}

/// Whether a secret could be found in the body.
fn check_searchable(head: &Parts) -> Result<(), EgressReason> {
    let mut encodings = head.headers.get_all(CONTENT_ENCODING).iter();
    let is_encoded = encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if is_encoded || head.status == StatusCode::PARTIAL_CONTENT {
        return Err(EgressReason::Encoding);
    }
    Ok(())
}

/// Whether no coding but that of chunks was used to send the body.
fn is_plainly_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings.all(|value| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

fn may_have_body(status: StatusCode) -> bool {
    status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}
