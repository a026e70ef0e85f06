//! Parsers of values.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::egress::AllowList;
use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_core::values::duration::parse_duration;
use cofferdam_core::values::host_name::is_rule;
use cofferdam_core::values::names::is_variable_name;
use cofferdam_core::values::origin::is_origin;

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

/// A byte count, or 0 for no limit.
pub(super) fn parse_optional_bytes(text: &str) -> Option<Option<u64>> {
    parse_bytes(text).ok().map(|bytes| (bytes > 0).then_some(bytes))
}

/// A duration above 0.
pub(super) fn parse_some_duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().filter(|duration| !duration.is_zero())
}

/// `on` or `off`.
pub(super) fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Milliseconds: a whole number, or a duration.
pub(super) fn parse_milliseconds(text: &str) -> Option<u64> {
    let duration = || u64::try_from(parse_duration(text).ok()?.as_millis()).ok();
    parse_decimal(text).or_else(duration)
}

/// The first address that `HOST:PORT` stands for.
pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok()?.next()
}

/// Origins separated by commas, each as a browser could send it.
pub(super) fn parse_origins(text: &str) -> Option<Vec<String>> {
    let origins = text.split(',').map(str::trim).filter(|origin| !origin.is_empty());
    origins.map(|origin| is_origin(origin).then(|| origin.to_owned())).collect()
}

/// Host names separated by commas; in lower case afterwards.
pub(super) fn parse_hosts(text: &str) -> Option<Vec<String>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.map(str::to_ascii_lowercase);
    names.map(|name| is_rule(&name).then_some(name)).collect()
}

/// Entries of an allow-list separated by commas.
pub(super) fn parse_allow_list(text: &str) -> Option<AllowList> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let entries: Vec<String> = entries.map(str::to_owned).collect();
    AllowList::parse(&entries).ok()
}

/// Absolute paths separated by colons; an empty text has none.
pub(super) fn parse_paths(text: &str) -> Option<Vec<PathBuf>> {
    let paths = text.split(':').filter(|path| !path.is_empty()).map(PathBuf::from);
    paths.map(|path| path.is_absolute().then_some(path)).collect()
}

/// Directories separated by colons, each absolute and without `..`.
pub(super) fn parse_roots(text: &str) -> Option<Vec<PathBuf>> {
    let is_plain = |root: &Path| {
        root.is_absolute() && root.components().all(|part| part != Component::ParentDir)
    };
    let roots = text.split(':').map(PathBuf::from);
    roots.map(|root| is_plain(&root).then_some(root)).collect()
}

/// Names separated by commas or spaces, each as a shell could set it.
pub(super) fn parse_names(text: &str) -> Option<Vec<String>> {
    let names = text.split([',', ' ']).filter(|name| !name.is_empty());
    names.map(|name| is_variable_name(name).then(|| name.to_owned())).collect()
}
