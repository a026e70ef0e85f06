//! Whether a request names a host that it may: the wall against DNS rebinding.
//!
//! A page whose own name was bound anew to an address of this service is of the service's origin
//! to its browser, which then sends no `Origin` with a GET and lets the page read the answer. The
//! name is still the page's, and it is in `Host`.

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Version};
use axum::middleware::Next;
use axum::response::Response;

use super::authorization::OPEN_PATH;
use crate::http::error::{Api, Refusal};
use cofferdam_core::values::host_name::Host;

/// Why a `Host` header is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    /// HTTP/1.1 requires one.
    #[error("no Host header")]
    Missing,
    /// Of two it is not known which is meant.
    #[error("more than one Host header")]
    Repeated,
    /// Not `host` or `host:port`.
    #[error("malformed Host header")]
    Malformed,
}

/// Which names a listener answers to.
#[derive(Debug, Clone, Copy)]
pub enum Names<'a> {
    /// Any: a token is asked for, which no stranger's page has.
    Any,
    /// Those that no stranger can own, and these.
    Trusted(&'a [String]),
}

/// Refuses a request without one good `Host`, and one whose host is not among `names`, its body
/// unread. `/health` is answered under every name.
pub async fn check(names: Names<'_>, request: Request, next: Next) -> Response {
    match judge(names, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.answer(Api::of(request.uri())),
    }
}

fn judge(names: Names<'_>, request: &Request) -> Result<(), Refusal> {
    let named = host(request.headers(), request.version()).map_err(Refusal::Host)?;
    let Names::Trusted(allowed) = names else { return Ok(()) };
    // A request line with a whole URL names a host as well. Both have to be good.
    let of_line = request.uri().host().map(|host| Host::parse(host.as_bytes()));
    let of_line = match of_line {
        Some(None) => return Err(Refusal::Host(HostFault::Malformed)),
        Some(Some(host)) => Some(host),
        None => None,
    };
    let is_trusted = named.iter().chain(&of_line).all(|host| host.is_trusted(allowed));
    let is_open = request.uri().path() == OPEN_PATH;
    if is_trusted || is_open { Ok(()) } else { Err(Refusal::HostNotAllowed) }
}

/// The one host of `headers`. HTTP/1.0 has no such header, though clients send it.
fn host(headers: &HeaderMap, version: Version) -> Result<Option<Host>, HostFault> {
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version == Version::HTTP_10 => Ok(None),
        (None, _) => Err(HostFault::Missing),
        (Some(_), Some(_)) => Err(HostFault::Repeated),
        (Some(value), None) => Host::parse(value.as_bytes()).map(Some).ok_or(HostFault::Malformed),
    }
}
