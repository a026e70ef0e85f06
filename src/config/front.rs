//! What the environment says of names and bodies that the HTTP front takes.

use super::parse::parse_some_bytes;
use super::{BODIES_MAX, HOSTS_ALLOW, RawConfig};
use cofferdam_core::values::host_name::is_rule;

/// The default of `HTTP_BODIES_MAX`.
const BODIES_BYTES_MAX: u64 = 64 << 20;

/// What the front takes of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontConfig {
    /// Names that the service answers to without a token, beside local ones and addresses.
    pub hosts_allow: Vec<String>,
    /// What all request bodies that are being read may hold together, bytes.
    pub bodies_bytes_max: u64,
}

impl RawConfig {
    pub(super) fn front(&mut self) -> FrontConfig {
        FrontConfig {
            hosts_allow: self.figure(
                HOSTS_ALLOW,
                "names divided by commas, as cofferdam.example or *.example, without a port",
                Vec::new(),
                parse_hosts,
            ),
            bodies_bytes_max: self.figure(
                BODIES_MAX,
                "a byte count above 0, as 64MiB",
                BODIES_BYTES_MAX,
                parse_some_bytes,
            ),
        }
    }
}

/// Names divided by commas, in lower case afterwards.
fn parse_hosts(text: &str) -> Option<Vec<String>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.map(str::to_ascii_lowercase);
    names.map(|name| is_rule(&name).then_some(name)).collect()
}
