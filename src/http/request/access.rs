//! Decides which requests are allowed, by their token, `Host` and `Origin`.

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use axum::http::{Extensions, HeaderMap, Method, Uri, Version};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::config::{PublicRoutes, TokenName, Tokens};
use crate::http::error::{HostError, HttpApi, HttpError};
use crate::http::request::log::authorized;
use cofferdam_core::values::host_name::Host;
use cofferdam_core::weakened::{self, Wall};

/// Base64url as clients write it: padded, or not, since `=` may not be in a subprotocol.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The path that is open to everyone.
pub const OPEN_PATH: &str = "/health";

/// Marks a request without a token: only what is public is answered.
#[derive(Debug, Clone, Copy)]
pub struct PublicView;

/// Refuses a request without one of `tokens` before reading its body, even if the path does not
/// exist, unless it shows none and its path is one of `public`. Allows every request if there are no tokens. Handlers find the [`TokenName`] in the
/// extensions of the request.
pub async fn check_token(
    tokens: &Tokens,
    public: PublicRoutes,
    mut request: Request,
    next: Next,
) -> Response {
    if tokens.is_empty() || request.uri().path() == OPEN_PATH {
        return next.run(request).await;
    }
    let headers = request.headers();
    let named = match bearer_token(headers) {
        None if is_attach(request.uri()) && !headers.contains_key(AUTHORIZATION) => {
            offered_token(headers).and_then(|token| tokens.holder(&token))
        }
        token => token.and_then(|token| tokens.holder(token)),
    };
    match named {
        Some(client) => {
            authorized(client.as_str());
            request.extensions_mut().insert(client.clone());
            next.run(request).await
        }
        None if is_public(&request, public) => {
            request.extensions_mut().insert(PublicView);
            next.run(request).await
        }
        None => HttpError::Unauthorized.answer(HttpApi::of(request.uri())),
    }
}

/// Returns whether everybody may read at the path. A token that is wrong is refused all the same.
fn is_public(request: &Request, public: PublicRoutes) -> bool {
    let is_open = match request.uri().path() {
        "/status" => public.status,
        "/metrics" => public.metrics,
        _ => false,
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    is_open && is_read && !request.headers().contains_key(AUTHORIZATION)
}

/// Returns the name of the token that the request was sent with; the empty one without tokens.
pub fn token_name(extensions: &Extensions) -> TokenName {
    let named = extensions.get().cloned().filter(|_| !weakened::lacks(Wall::Owner));
    named.unwrap_or_default()
}

/// Returns the token in the `Authorization` header. With two headers, it is unclear which one
/// counts.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii_start())
}

/// Returns the token that a page offers beside its subprotocol, since it can set no header of a
/// WebSocket: `bearer.` and the token in base64url.
fn offered_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    let token = offered.nth(1)?.trim().strip_prefix("bearer.")?;
    BASE64URL.decode(token).ok()
}

/// Returns whether the path is that of a WebSocket, whose handler looks at the origin itself.
fn is_attach(uri: &Uri) -> bool {
    let mut parts = uri.path().split('/').skip(1);
    let mut next = || parts.next().unwrap_or_default();
    let shape = [next(), next(), next(), next(), next(), next()];
    matches!(shape, ["v1", "workspaces", _, "sessions", _, "attach"]) && parts.next().is_none()
}

/// Which host names a listener accepts.
#[derive(Debug, Clone, Copy)]
pub enum HostRule<'a> {
    /// All: a token is required, which a foreign page does not have.
    Any,
    /// Names that only this host can have, and the given ones.
    Trusted(&'a [String]),
}

/// Refuses a request that has no valid `Host` or names a host that `names` does not accept, before
/// reading its body. `/health` is answered under every name.
///
/// This stops DNS rebinding: a page whose own name was rebound to this service's address is
/// same-origin to its browser, which sends no `Origin` with a GET and lets the page read the
/// response. `Host` still holds the page's name.
pub async fn check_host(names: HostRule<'_>, request: Request, next: Next) -> Response {
    match evaluate_host(names, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(HttpApi::of(request.uri())),
    }
}

fn evaluate_host(names: HostRule<'_>, request: &Request) -> Result<(), HttpError> {
    let named = host(request.headers(), request.version()).map_err(HttpError::Host)?;
    let HostRule::Trusted(allowed) = names else { return Ok(()) };
    // A request line with a full URL names a host too. Both must be accepted.
    let of_line = request.uri().host().map(|host| Host::parse(host.as_bytes()));
    let of_line = match of_line {
        Some(None) => return Err(HttpError::Host(HostError::Malformed)),
        Some(Some(host)) => Some(host),
        None => None,
    };
    let is_trusted = named.iter().chain(&of_line).all(|host| host.is_trusted(allowed));
    let is_open = request.uri().path() == OPEN_PATH;
    if is_trusted || is_open { Ok(()) } else { Err(HttpError::HostNotAllowed) }
}

/// Returns the host of `headers`. HTTP/1.0 does not require the header, but clients may send it.
fn host(headers: &HeaderMap, version: Version) -> Result<Option<Host>, HostError> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version == Version::HTTP_10 => Ok(None),
        (None, _) => Err(HostError::Missing),
        (Some(_), Some(_)) => Err(HostError::Repeated),
        (Some(value), None) => Host::parse(value.as_bytes()).map(Some).ok_or(HostError::Malformed),
    }
}

/// Refuses a request from a page whose origin is not in `allowed`, before reading its body.
///
/// A page of any origin can make its reader's browser post to an address that only the reader
/// reaches; the browser sends the page's origin. Requests that change nothing are allowed, except
/// below `/v1/`: no foreign page may read what jobs produced.
pub async fn check_origin(allowed: &[String], request: Request, next: Next) -> Response {
    let api = HttpApi::of(request.uri());
    let harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && api == HttpApi::Runs;
    if harmless || is_attach(request.uri()) || is_origin_allowed(request.headers(), allowed) {
        next.run(request).await
    } else {
        HttpError::CrossOrigin.answer(api)
    }
}

/// Returns whether every `Origin` header equals one of `allowed`.
pub fn is_origin_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.all(|origin| allowed.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_page_offers_its_token_as_the_second_subprotocol_of_an_attach() {
        for (offered, token) in [
            ("cofferdam.session.v1, bearer.YWJj", Some("abc")),
            ("cofferdam.session.v1,bearer.YS8_", Some("a/?")),
            ("cofferdam.session.v1, bearer.YWI", Some("ab")),
            ("cofferdam.session.v1, bearer.YWI=", Some("ab")),
            ("bearer.YWJj, cofferdam.session.v1", None),
            ("cofferdam.session.v1, bearer.YWJj=", None),
            ("cofferdam.session.v1, YWJj", None),
            ("cofferdam.session.v1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offered));
            assert_eq!(offered_token(&headers).as_deref(), token.map(str::as_bytes), "{offered}");
        }
        for (path, attaches) in [
            ("/v1/workspaces/a/sessions/b/attach", true),
            ("/v1/workspaces/a/sessions/b/attach?offset=end", true),
            ("/v1/workspaces/a/sessions/b/attach/", false),
            ("/v1/workspaces/a/sessions/b/log", false),
            ("/v1/workspaces/a/attach", false),
        ] {
            assert_eq!(is_attach(&path.parse().unwrap()), attaches, "{path}");
        }
    }

    #[test]
    fn a_token_is_read_from_one_bearer_header() {
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
            assert_eq!(bearer_token(&headers), token.map(str::as_bytes), "{values:?}");
        }
    }
}
