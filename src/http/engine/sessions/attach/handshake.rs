//! The request that turns a connection into a WebSocket, and its response (RFC 6455, section 4.2).

use axum::body::Body;
use axum::http::header::{
    CONNECTION, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::workspace::EngineError;

/// The subprotocol of attached sessions.
const SESSION_PROTOCOL: &str = "cofferdam.session.v1";
const VERSION: &str = "13";
const KEY_BYTES: usize = 16;
/// Every server of the protocol adds this to the client's key.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Returns the response that accepts the request, or what is wrong with it.
pub fn accept(head: &Parts) -> Result<Response, EngineError> {
    let headers = &head.headers;
    let wrong = |name: HeaderName, want: &str| {
        Err(EngineError::invalid(name.as_str(), format!("want {want}")))
    };
    if head.method != Method::GET || head.version != Version::HTTP_11 {
        return wrong(UPGRADE, "a GET of HTTP/1.1");
    }
    if !has_token(headers, &UPGRADE, "websocket") {
        return wrong(UPGRADE, "websocket");
    }
    if !has_token(headers, &CONNECTION, "upgrade") {
        return wrong(CONNECTION, "Upgrade");
    }
    if single(headers, &SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return wrong(SEC_WEBSOCKET_VERSION, VERSION);
    }
    let key = single(headers, &SEC_WEBSOCKET_KEY);
    let is_key = |key: &&str| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
    let Some(key) = key.filter(is_key) else {
        return wrong(SEC_WEBSOCKET_KEY, "16 bytes in base64");
    };
    if !protocols(headers).any(|protocol| protocol == SESSION_PROTOCOL) {
        return wrong(SEC_WEBSOCKET_PROTOCOL, SESSION_PROTOCOL);
    }
    let accepted = STANDARD.encode(Sha1::digest(format!("{key}{ACCEPT_SUFFIX}")));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SESSION_PROTOCOL));
    headers.extend(HeaderValue::try_from(accepted).ok().map(|value| (SEC_WEBSOCKET_ACCEPT, value)));
    Ok(response)
}

/// The subprotocols that the client offers, in its order.
fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tokens(headers, &SEC_WEBSOCKET_PROTOCOL)
}

/// Returns whether a page may attach: it sends no `Origin`, or one on the loopback, or one that
/// `allowed` names.
pub fn is_page_allowed(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    origins.all(|origin| {
        let Ok(origin) = origin.to_str() else { return false };
        is_loopback(origin) || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    })
}

/// Returns whether `origin` (`scheme://host[:port]`) is a page of this host.
fn is_loopback(origin: &str) -> bool {
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    let host = host.unwrap_or_default();
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// The value of a header that is there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn head(changes: &[(&str, &str)]) -> Parts {
        let mut headers = vec![
            ("host", "localhost"),
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "chat, cofferdam.session.v1"),
        ];
        headers.retain(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
        headers.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = Request::builder().uri("/").version(Version::HTTP_11);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_response_proves_that_the_key_was_read() {
        let response = accept(&head(&[])).unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        // The example of the RFC.
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], SESSION_PROTOCOL);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (name, value) in [
            ("upgrade", ""),
            ("upgrade", "h2c"),
            ("connection", "keep-alive"),
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", ""),
            ("sec-websocket-key", "c2hvcnQ="),
            ("sec-websocket-protocol", ""),
            ("sec-websocket-protocol", "cofferdam.session.v2"),
        ] {
            let error = accept(&head(&[(name, value)])).unwrap_err();
            assert_eq!(error.details["path"], name, "{value}");
        }
    }

    #[test]
    fn pages_of_this_host_and_allowed_ones_may_attach() {
        let allowed = ["https://app.example".to_owned()];
        for (origin, expected) in [
            ("", true),
            ("http://localhost", true),
            ("http://LOCALHOST:3000", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("https://app.example", true),
            ("https://app.example.evil", false),
            ("http://localhost.evil", false),
            ("http://10.0.0.1", false),
            ("null", false),
        ] {
            let head = head(&[("origin", origin)]);
            assert_eq!(is_page_allowed(&head.headers, &allowed), expected, "{origin:?}");
        }
    }
}
