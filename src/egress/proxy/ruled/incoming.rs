//! What a request on a connection to one host says of itself.

use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::uri::Scheme;
use axum::http::{HeaderMap, Method, Request, Version};

use crate::egress::hosts::literal::AskedHost;
use crate::egress::proxy::connection::target::split;
use cofferdam_core::egress::EgressReason;
use cofferdam_core::weakened::{self, Wall};

const PORT_HTTP: u16 = 80;
const PORT_HTTPS: u16 = 443;

/// The port that is meant where none is named.
pub fn port_default(is_plain: bool) -> u16 {
    if is_plain { PORT_HTTP } else { PORT_HTTPS }
}

/// Returns the path and query that `request`, which came over a connection to `host` and `port`, asks for.
///
/// # Errors
/// It is malformed, or for another host.
pub fn target_of<B>(
    request: &Request<B>,
    (host, port): (&AskedHost, u16),
    is_plain: bool,
) -> Result<String, EgressReason> {
    let uri = request.uri();
    if request.method() == Method::CONNECT {
        return Err(EgressReason::BadRequest);
    }
    let scheme = if is_plain { Scheme::HTTP } else { Scheme::HTTPS };
    if uri.scheme().is_some_and(|named| *named != scheme) {
        return Err(EgressReason::BadRequest);
    }
    let named = named_hosts(request)?;
    let default = port_default(is_plain);
    let agrees = |text: &String| {
        let (named, named_port) = split(text).ok_or(EgressReason::BadRequest)?;
        Ok(named == *host && named_port.unwrap_or(default) == port)
    };
    for text in &named {
        if !agrees(text)? && !weakened::lacks(Wall::Agreement) {
            return Err(EgressReason::HostMismatch);
        }
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(path.to_owned())
}

/// The hosts that a request names: in its first line or `:authority`, and in `Host`.
fn named_hosts<B>(request: &Request<B>) -> Result<Vec<String>, EgressReason> {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let in_headers: Vec<String> = request
        .headers()
        .get_all(HOST)
        .iter()
        .map(|value| value.to_str().map(str::to_owned).map_err(|_| EgressReason::BadRequest))
        .collect::<Result<_, _>>()?;
    let is_enough = match request.version() {
        Version::HTTP_2 => authority.is_some() || !in_headers.is_empty(),
        Version::HTTP_11 => !in_headers.is_empty(),
        // Before HTTP/1.1 there is no `Host`; the connection says it.
        _ => true,
    };
    if !is_enough || in_headers.len() > 1 {
        return Err(EgressReason::BadRequest);
    }
    Ok(authority.into_iter().chain(in_headers).collect())
}

/// The length that the sender of `headers` declares for the body.
pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(version: Version, uri: &str, hosts: &[&str]) -> Result<String, EgressReason> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let host = AskedHost::parse("a.example").unwrap();
        target_of(&request.body(()).unwrap(), (&host, 443), false)
    }

    #[test]
    fn a_request_is_for_the_host_of_its_connection_alone() {
        let (mismatch, bad) = (Err(EgressReason::HostMismatch), Err(EgressReason::BadRequest));
        let path = || Ok("/x?y=1".to_owned());
        for (version, uri, hosts, expected) in [
            (Version::HTTP_11, "/x?y=1", vec!["a.example"], path()),
            (Version::HTTP_11, "/x?y=1", vec!["A.Example.:443"], path()),
            (Version::HTTP_11, "https://a.example/x?y=1", vec!["a.example"], path()),
            (Version::HTTP_10, "/x?y=1", vec![], path()),
            (Version::HTTP_2, "https://a.example/x?y=1", vec![], path()),
            (Version::HTTP_2, "https://a.example:443/x?y=1", vec!["a.example"], path()),
            (Version::HTTP_2, "/x?y=1", vec!["a.example"], path()),
            (Version::HTTP_11, "/x", vec!["b.example"], mismatch.clone()),
            (Version::HTTP_11, "/x", vec!["a.example:8443"], mismatch.clone()),
            (Version::HTTP_11, "/x", vec!["127.0.0.1"], mismatch.clone()),
            (Version::HTTP_11, "https://b.example/x", vec!["a.example"], mismatch.clone()),
            (Version::HTTP_11, "https://a.example/x", vec!["b.example"], mismatch.clone()),
            (Version::HTTP_2, "https://b.example/x", vec![], mismatch.clone()),
            (Version::HTTP_2, "https://a.example/x", vec!["b.example"], mismatch),
            (Version::HTTP_11, "/x", vec![], bad.clone()),
            (Version::HTTP_11, "/x", vec!["a.example", "a.example"], bad.clone()),
            (Version::HTTP_11, "/x", vec!["a.example,b.example"], bad.clone()),
            (Version::HTTP_11, "http://a.example/x", vec!["a.example"], bad.clone()),
            (Version::HTTP_2, "https://u@a.example/x", vec![], bad.clone()),
            (Version::HTTP_2, "http://a.example/x", vec![], bad),
        ] {
            assert_eq!(target(version, uri, &hosts), expected, "{version:?} {uri} {hosts:?}");
        }
    }
}
