//! One entry of a list of hosts: `host`, `host:port`, `host:*`, `*.host:port`, an address or a block of
//! addresses.

use std::net::IpAddr;

use super::address::AddressBlock;
use super::literal::{AskedHost, ends_in_a_number, is_name};

/// The port of an entry that names none: that of `https`.
const PORT_DEFAULT: u16 = 443;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    pattern: HostPattern,
    port: PortRule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    Name(String),
    /// All names below this one.
    Below(String),
    Block(AddressBlock),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortRule {
    /// None is named.
    Default,
    One(u16),
    Any,
}

/// The hosts of an entry, whatever its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedHosts<'a> {
    /// One name.
    Name(&'a str),
    /// All names below this one.
    Below(&'a str),
    /// The addresses that share so many leading bits with this one.
    Block(IpAddr, u8),
}

/// How exactly an entry names its hosts: the kind, the length, whether it names one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryRank(u8, usize, bool);

impl PortRule {
    fn matches(self, port: u16) -> bool {
        match self {
            Self::Default => port == PORT_DEFAULT,
            Self::One(only) => port == only,
            Self::Any => true,
        }
    }

    fn covers(self, other: Self) -> bool {
        match other {
            Self::Default => self.matches(PORT_DEFAULT),
            Self::One(port) => self.matches(port),
            Self::Any => self == Self::Any,
        }
    }
}

impl AllowEntry {
    /// Parses an entry, or returns why it is invalid.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.is_ascii() {
            return Err("a name is written in ASCII, an international one as xn--…");
        }
        let (host, port) = split_port(text)?;
        Ok(Self { pattern: parse_pattern(host)?, port: parse_port(port)? })
    }

    /// Whether the entry names `host` and `port`.
    pub fn matches(&self, host: &AskedHost, port: u16) -> bool {
        self.port.matches(port) && self.names(host)
    }

    /// Whether the entry names `host`, at `port` if it names a port at all.
    pub fn matches_unless_port_differs(&self, host: &AskedHost, port: u16) -> bool {
        (self.port == PortRule::Default || self.port.matches(port)) && self.names(host)
    }

    /// Whether the entry names `host`, at whatever port.
    pub fn names(&self, host: &AskedHost) -> bool {
        match (&self.pattern, host) {
            (HostPattern::Name(name), AskedHost::Name(asked)) => name == asked,
            (HostPattern::Below(parent), AskedHost::Name(asked)) => is_below(asked, parent),
            (HostPattern::Block(block), AskedHost::Address(asked)) => block.contains(*asked),
            _ => false,
        }
    }

    /// The one port that the entry names; none for `*`.
    pub fn port(&self) -> Option<u16> {
        match self.port {
            PortRule::Default => Some(PORT_DEFAULT),
            PortRule::One(port) => Some(port),
            PortRule::Any => None,
        }
    }

    /// Whether the entry is a block of several addresses.
    pub fn is_block(&self) -> bool {
        matches!(&self.pattern, HostPattern::Block(block) if !block.is_single())
    }

    /// The name, the parent of all names, or the block that the entry names.
    pub fn named(&self) -> NamedHosts<'_> {
        match &self.pattern {
            HostPattern::Name(name) => NamedHosts::Name(name),
            HostPattern::Below(parent) => NamedHosts::Below(parent),
            HostPattern::Block(block) => NamedHosts::Block(block.first(), block.prefix_bits()),
        }
    }

    /// How exactly the entry names its hosts: of several that name a host and port the greatest decides.
    pub fn rank(&self) -> EntryRank {
        let has_port = self.port().is_some();
        match &self.pattern {
            HostPattern::Name(_) if has_port => EntryRank(5, 0, true),
            HostPattern::Name(_) => EntryRank(4, 0, false),
            HostPattern::Below(parent) => EntryRank(3, parent.len(), has_port),
            HostPattern::Block(block) if block.is_single() => EntryRank(2, 0, has_port),
            HostPattern::Block(block) => EntryRank(1, block.prefix_bits().into(), has_port),
        }
    }

    /// Whether the entry names all that `other` names.
    pub fn covers(&self, other: &Self) -> bool {
        let covers_hosts = match (&self.pattern, &other.pattern) {
            (HostPattern::Name(name), HostPattern::Name(other)) => name == other,
            (HostPattern::Below(parent), HostPattern::Name(name)) => is_below(name, parent),
            (HostPattern::Below(parent), HostPattern::Below(other)) => {
                parent == other || is_below(other, parent)
            }
            (HostPattern::Block(block), HostPattern::Block(other)) => block.covers(other),
            _ => false,
        };
        covers_hosts && self.port.covers(other.port)
    }
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Splits off what stands behind the last colon. Several colons without brackets are an IPv6 address.
fn split_port(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, behind) = rest.split_once(']').ok_or("a bracket is not closed")?;
        if !address.contains(':') {
            return Err("brackets hold an IPv6 address");
        }
        let at = behind.find(':').unwrap_or(behind.len());
        let (prefix, port) = behind.split_at(at);
        // Either way round: [fd00::]/8 and [fd00::/8].
        let host = if prefix.is_empty() { address } else { &text[..text.len() - port.len()] };
        return Ok((host, port.strip_prefix(':')));
    }
    match text.matches(':').count() {
        1 => Ok(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))),
        _ => Ok((text, None)),
    }
}

fn parse_port(port: Option<&str>) -> Result<PortRule, &'static str> {
    let wrong = "a port is a number from 1 to 65535, or *";
    match port {
        None => Ok(PortRule::Default),
        Some("*") => Ok(PortRule::Any),
        Some(digits) => {
            let is_plain =
                digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
            digits.parse().ok().filter(|_| is_plain).map(PortRule::One).ok_or(wrong)
        }
    }
}

fn parse_pattern(host: &str) -> Result<HostPattern, &'static str> {
    let unbracketed = host.replace(['[', ']'], "");
    if let Some((address, prefix)) = unbracketed.split_once('/') {
        let address = address.parse::<IpAddr>().map_err(|_| "no address stands before the /")?;
        let wrong = "a prefix is a number of bits";
        let is_plain = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let bits = prefix.parse().ok().filter(|_| is_plain).ok_or(wrong)?;
        return AddressBlock::new(address, bits).map(HostPattern::Block);
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(HostPattern::Block(AddressBlock::one(address)));
    }
    let lower = host.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    let (parent, is_wildcard) = name.strip_prefix("*.").map_or((name, false), |p| (p, true));
    if !is_name(parent) {
        return Err("neither a name nor an address");
    }
    if ends_in_a_number(parent) {
        return Err("an address has four decimal parts");
    }
    let parent = parent.to_owned();
    Ok(if is_wildcard { HostPattern::Below(parent) } else { HostPattern::Name(parent) })
}
