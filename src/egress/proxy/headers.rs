//! The headers that belong to one connection, and `Host`.

use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue};

use crate::egress::hosts::literal::AskedHost;

/// Headers of one connection, beside those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// Removes the headers of one connection.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        // The length belongs to the message, whatever a sender says of it.
        .filter(|name| *name != CONTENT_LENGTH)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Returns `host` and `port` as `Host` and `:authority` have them: without the port if it is `port_default`.
pub fn host_value(host: &AskedHost, port: u16, port_default: u16) -> String {
    let host = match host.address() {
        Some(address) if address.is_ipv6() => format!("[{address}]"),
        _ => host.to_string(),
    };
    if port == port_default { host } else { format!("{host}:{port}") }
}

/// The protocols that the sender wants to speak from here on, in lower case.
pub fn upgrades(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    let protocols = values.flat_map(|value| value.split(','));
    protocols.map(|protocol| protocol.trim().to_ascii_lowercase()).collect()
}

/// Whether the sender takes trailers.
pub fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let name = coding.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("trailers")
    })
}

/// Asks for trailers.
pub fn ask_for_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
}
