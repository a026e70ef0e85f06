//! Where a request wants to go, by its first line and `Host`.

use axum::http::header::HOST;
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderMap, Method, Request, Uri, Version};

use crate::egress::hosts::literal::AskedHost;
use crate::egress::policy::{EgressKind, EgressRequest};
use cofferdam_core::weakened::{self, Wall};

const PORT_HTTP: u16 = 80;

/// Returns where `request` wants to go, or `None` if that is malformed or said in two ways.
pub fn of<B>(request: &Request<B>) -> Option<EgressRequest> {
    let (method, uri) = (request.method(), request.uri());
    let target = if method == Method::CONNECT { tunnel(uri)? } else { plain(method, uri)? };
    let agrees = agrees(&target, request.headers(), request.version());
    (agrees || weakened::lacks(Wall::Host)).then_some(target)
}

fn tunnel(uri: &Uri) -> Option<EgressRequest> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none())?;
    let (host, port) = split(authority.as_str())?;
    Some(EgressRequest { host, port: port?, kind: EgressKind::Tunnel })
}

fn plain(method: &Method, uri: &Uri) -> Option<EgressRequest> {
    let authority: &Authority = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTP))?;
    let (host, port) = split(authority.as_str())?;
    let port = port.unwrap_or(PORT_HTTP);
    // A server's answer to TRACE repeats what is added on the way.
    (method != Method::TRACE).then_some(EgressRequest { host, port, kind: EgressKind::Plain })
}

/// Whether `Host` names the same host and port. Clients of HTTP/1.0 send none, and some leave out the port
/// of a tunnel.
fn agrees(target: &EgressRequest, headers: &HeaderMap, version: Version) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(value) = hosts.next() else {
        return version < Version::HTTP_11 || target.kind == EgressKind::Tunnel;
    };
    let Some((host, port)) = value.to_str().ok().and_then(split) else { return false };
    let default = match target.kind {
        EgressKind::Tunnel => target.port,
        EgressKind::Plain => PORT_HTTP,
    };
    hosts.next().is_none() && host == target.host && port.unwrap_or(default) == target.port
}

/// Splits `host` or `host:port`.
pub fn split(authority: &str) -> Option<(AskedHost, Option<u16>)> {
    let from = authority.rfind(']').unwrap_or(0);
    let (host, port) = match authority.get(from..)?.find(':') {
        Some(at) => (authority.get(..from + at)?, Some(authority.get(from + at + 1..)?)),
        None => (authority, None),
    };
    let port = match port {
        Some(digits) => Some(parse_port(digits)?),
        None => None,
    };
    Some((AskedHost::parse(host)?, port))
}

fn parse_port(digits: &str) -> Option<u16> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|port| is_plain && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, uri: &str, hosts: &[&str]) -> Option<(String, u16)> {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        of(&request.body(()).unwrap()).map(|target| (target.host.to_string(), target.port))
    }

    #[test]
    fn a_request_goes_where_its_first_line_says() {
        for (method, uri, hosts, host, port) in [
            ("CONNECT", "PyPI.org:443", vec!["pypi.org:443"], "pypi.org", 443),
            ("CONNECT", "pypi.org:8443", vec!["PYPI.org"], "pypi.org", 8443),
            ("CONNECT", "pypi.org:443", vec![], "pypi.org", 443),
            ("CONNECT", "[::1]:443", vec!["[::1]:443"], "::1", 443),
            ("CONNECT", "0x7f.1:443", vec!["127.0.0.1:443"], "127.0.0.1", 443),
            ("GET", "http://a.example", vec!["a.example"], "a.example", 80),
            ("GET", "http://a.example:80/x", vec!["a.example"], "a.example", 80),
            ("GET", "http://a.example:8080/x?y", vec!["a.example:8080"], "a.example", 8080),
            ("PUT", "http://[fd00::1]:81/", vec!["[fd00::1]:81"], "fd00::1", 81),
        ] {
            let expected = Some((host.to_owned(), port));
            assert_eq!(asked(method, uri, &hosts), expected, "{method} {uri} {hosts:?}");
        }
    }

    #[test]
    fn a_target_that_is_malformed_or_said_in_two_ways_is_none() {
        for (method, uri, hosts) in [
            ("CONNECT", "pypi.org", vec!["pypi.org"]),
            ("CONNECT", "pypi.org:0", vec![]),
            ("CONNECT", "user@pypi.org:443", vec![]),
            ("CONNECT", "pypi.org:443", vec!["evil.example:443"]),
            ("CONNECT", "pypi.org:443", vec!["pypi.org:80"]),
            ("CONNECT", "pypi.org:443", vec!["pypi.org:443", "pypi.org:443"]),
            ("CONNECT", "/x", vec!["a.example"]),
            ("GET", "/x", vec!["a.example"]),
            ("GET", "https://a.example/", vec!["a.example"]),
            ("GET", "http://a.example/", vec![]),
            ("GET", "http://a.example/", vec!["b.example"]),
            ("GET", "http://a.example:8080/", vec!["a.example"]),
            ("GET", "http://a.example/", vec!["a.example:8080"]),
            ("GET", "http://a.example/", vec!["a.example", "b.example"]),
            ("GET", "http://a.example/", vec!["a.example,b.example"]),
            ("GET", "http://user:pass@a.example/", vec!["a.example"]),
            ("TRACE", "http://a.example/", vec!["a.example"]),
            ("OPTIONS", "*", vec!["a.example"]),
        ] {
            assert_eq!(asked(method, uri, &hosts), None, "{method} {uri} {hosts:?}");
        }
    }
}
