//! Which requests are let through, by their token, their `Host` and their `Origin`.

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, Version};
use axum::middleware::Next;
use axum::response::Response;

use crate::config::Tokens;
use crate::http::error::{ApiError, HostError, HttpApi};
use crate::http::request_log;
use cofferdam_core::values::host_name::Host;

/// What anybody may ask for: whether the service is there.
pub const OPEN_PATH: &str = "/health";

/// Refuses what shows none of `tokens`, its body unread, whether there is such a path or not.
/// Without tokens nothing is refused.
pub async fn check_token(tokens: &Tokens, request: Request, next: Next) -> Response {
    if tokens.is_empty() || request.uri().path() == OPEN_PATH {
        return next.run(request).await;
    }
    match shown(request.headers()).and_then(|token| tokens.holder(token)) {
        Some(client) => {
            request_log::authorized(client);
            next.run(request).await
        }
        None => ApiError::Unauthorized.answer(HttpApi::of(request.uri())),
    }
}

/// The token that is shown. Of two it is not known which is meant.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii_start())
}

/// Which names a listener answers to.
#[derive(Debug, Clone, Copy)]
pub enum HostRule<'a> {
    /// Any: a token is asked for, which no stranger's page has.
    Any,
    /// Those that no stranger can own, and these.
    Trusted(&'a [String]),
}

/// Refuses a request without one good `Host`, and one whose host is not among `names`, its body
/// unread. `/health` is answered under every name.
pub async fn check_host(names: HostRule<'_>, request: Request, next: Next) -> Response {
    match judge_host(names, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(HttpApi::of(request.uri())),
    }
}

fn judge_host(names: HostRule<'_>, request: &Request) -> Result<(), ApiError> {
    let named = host(request.headers(), request.version()).map_err(ApiError::Host)?;
    let HostRule::Trusted(allowed) = names else { return Ok(()) };
    // A request line with a whole URL names a host as well. Both have to be good.
    let of_line = request.uri().host().map(|host| Host::parse(host.as_bytes()));
    let of_line = match of_line {
        Some(None) => return Err(ApiError::Host(HostError::Malformed)),
        Some(Some(host)) => Some(host),
        None => None,
    };
    let is_trusted = named.iter().chain(&of_line).all(|host| host.is_trusted(allowed));
    let is_open = request.uri().path() == OPEN_PATH;
    if is_trusted || is_open { Ok(()) } else { Err(ApiError::HostNotAllowed) }
}

/// The one host of `headers`. HTTP/1.0 has no such header, though clients send it.
fn host(headers: &HeaderMap, version: Version) -> Result<Option<Host>, HostError> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version == Version::HTTP_10 => Ok(None),
        (None, _) => Err(HostError::Missing),
        (Some(_), Some(_)) => Err(HostError::Repeated),
        (Some(value), None) => Host::parse(value.as_bytes()).map(Some).ok_or(HostError::Malformed),
    }
}

/// Refuses what a page of an origin outside `allowed` asks, its body unread.
/// What changes nothing is answered, but for what jobs have left: no page of another origin may
/// read it, and what it is not given it cannot find a way to read.
pub async fn check_origin(allowed: &[String], request: Request, next: Next) -> Response {
    let api = HttpApi::of(request.uri());
    let harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && api == HttpApi::Runs;
    if harmless || is_origin_allowed(request.headers(), allowed) {
        next.run(request).await
    } else {
        ApiError::CrossOrigin.answer(api)
    }
}

/// Every `Origin` there is has to be one of `allowed`, to the byte.
pub fn is_origin_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.all(|origin| allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
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
