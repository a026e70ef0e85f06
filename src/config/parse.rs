//! What the values of variables may be.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use super::MetricsPlace;
use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_core::values::origin::is_origin;
use cofferdam_core::values::variable_name::is_variable_name;

/// Decimal digits alone: no sign, no space.
pub(super) fn parse_decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A whole number from 1.
pub(super) fn parse_count(text: &str) -> Option<usize> {
    parse_decimal(text).filter(|count| *count > 0)
}

/// A byte count above 0.
pub(super) fn parse_some_bytes(text: &str) -> Option<u64> {
    parse_bytes(text).ok().filter(|bytes| *bytes > 0)
}

/// A byte count, or 0 for none.
pub(super) fn parse_optional_bytes(text: &str) -> Option<Option<u64>> {
    parse_bytes(text).ok().map(|bytes| (bytes > 0).then_some(bytes))
}

/// The first address that `HOST:PORT` stands for.
pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

/// Where metrics are.
pub(super) fn parse_metrics_place(text: &str) -> Option<MetricsPlace> {
    match text {
        "" => Some(MetricsPlace::SamePort),
        "off" => Some(MetricsPlace::Off),
        address => parse_address(address).map(MetricsPlace::Own),
    }
}

/// Origins divided by commas, each one a browser could send.
pub(super) fn parse_origins(text: &str) -> Option<Vec<String>> {
    let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
    origins.map(|origin| is_origin(origin).then(|| origin.to_owned())).collect()
}

/// Absolute paths divided by colons; none of nothing.
pub(super) fn parse_paths(text: &str) -> Option<Vec<PathBuf>> {
    let paths = text.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    paths.map(|path| path.is_absolute().then_some(path)).collect()
}

/// Names divided by commas or spaces, each one a shell could set.
pub(super) fn parse_names(text: &str) -> Option<Vec<String>> {
    let names = text.split([',', ' ']).filter(|name| !name.is_empty());
    names.map(|name| is_variable_name(name).then(|| name.to_owned())).collect()
}
