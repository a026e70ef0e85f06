//! Whether a request shows a token of ours: before anything is asked of it, and before its body is read.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;

use crate::config::Tokens;
use crate::http::error::{Api, Refusal};
use crate::http::request_log;

/// What anybody may ask for: whether the service is there.
pub const OPEN_PATH: &str = "/health";

/// Refuses what shows none of `tokens`, its body unread, whether there is such a path or not.
/// Without tokens nothing is refused.
pub async fn check(tokens: &Tokens, request: Request, next: Next) -> Response {
    if tokens.is_empty() || request.uri().path() == OPEN_PATH {
        return next.run(request).await;
    }
    match shown(request.headers()).and_then(|token| tokens.holder(token)) {
        Some(client) => {
            request_log::authorized(client);
            next.run(request).await
        }
        None => Refusal::Unauthorized.answer(Api::of(request.uri())),
    }
}

/// The token that is shown. Of two it is not known which is meant.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_shown_by_one_header_of_the_one_scheme() {
        for (values, token) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer abc"], Some("abc")),
            (&["BEARER   abc"], Some("abc")),
            (&["Bearer a b"], Some("a b")),
            (&["Bearer "], Some("")),
            (&["Bearer"], None),
            (&["Bearerabc"], None),
            (&["Bearer\tabc"], None),
            (&["Basic abc"], None),
            (&["abc"], None),
            (&[""], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&[], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            assert_eq!(shown(&headers), token.map(str::as_bytes), "{values:?}");
        }
    }
}
