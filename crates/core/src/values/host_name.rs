//! Host names in `Host` headers, and which of them a stranger cannot own.

use std::net::{IpAddr, Ipv6Addr};

/// The longest name accepted, in bytes: the limit of DNS.
const NAME_BYTES_MAX: usize = 253;
/// Suffixes that public DNS never answers for: a stranger cannot point a name below them at an
/// address of this host. `localhost` is reserved for the loopback (RFC 6761); `svc` and
/// `svc.cluster.local` are what Kubernetes names services by.
const LOCAL_SUFFIXES: [&str; 3] = ["localhost", "svc", "svc.cluster.local"];

/// The host that a `Host` header names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name in lower case, without the dot that may end it.
    Name(String),
}

impl Host {
    /// Parses `value`, which is `host` or `host:port`. Returns `None` if it is malformed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        if let Some(bracketed) = text.strip_prefix('[') {
            let (address, port) = bracketed.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            return is_port_part(port).then_some(Self::Address(address.into()));
        }
        let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
        let name = host.strip_suffix('.').unwrap_or(host);
        if !is_port_part(port) || !is_name(name) {
            return None;
        }
        Some(name.parse().map_or_else(|_| Self::Name(name.to_ascii_lowercase()), Self::Address))
    }

    /// Whether no stranger's page can come from this host: it is an address, a name that public
    /// DNS does not answer for, or a name in `allowed`.
    pub fn is_trusted(&self, allowed: &[String]) -> bool {
        match self {
            Self::Address(_) => true,
            Self::Name(name) => is_local(name) || allowed.iter().any(|rule| matches(rule, name)),
        }
    }
}

/// Whether `text` is valid in a list of allowed names: a name in lower case, or `*.` and a name for
/// all names below it.
pub fn is_rule(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    is_lower && is_name(name) && name.parse::<IpAddr>().is_err()
}

fn matches(rule: &str, name: &str) -> bool {
    rule.strip_prefix("*.").map_or(rule == name, |suffix| is_below(name, suffix))
}

fn is_local(name: &str) -> bool {
    // The resolver looks up a name without a dot only in its own files and search domains.
    !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| is_below(name, suffix))
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Labels of letters, digits, `-` and `_`, divided by dots.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

/// Nothing, or a colon and a port; the port may be missing.
fn is_port_part(text: &str) -> bool {
    let Some(port) = text.strip_prefix(':') else { return text.is_empty() };
    port.bytes().all(|byte| byte.is_ascii_digit())
        && (port.is_empty() || port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text:?} is malformed"))
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for (text, name) in [
            ("localhost", "localhost"),
            ("LocalHost:4040", "localhost"),
            ("a_b-1.example.", "a_b-1.example"),
            ("battle.example:", "battle.example"),
            ("999.1.1.1", "999.1.1.1"),
        ] {
            assert_eq!(host(text), Host::Name(name.to_owned()), "{text:?}");
        }
        for (text, address) in
            [("127.0.0.1:80", "127.0.0.1"), ("10.0.0.7", "10.0.0.7"), ("[::1]:4040", "::1")]
        {
            assert_eq!(host(text), Host::Address(address.parse().unwrap()), "{text:?}");
        }
    }

    #[test]
    fn a_malformed_host_is_refused() {
        let long = "a".repeat(254);
        for text in [
            "",
            ".",
            ":80",
            "a..b",
            ".a",
            "a b",
            "a,b",
            "a/b",
            "a@b",
            "user:pass@a",
            "a:b",
            "a:+1",
            "a:65536",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[::1]:x",
            "[127.0.0.1]",
            "[fe80::1%25lo]",
            "*.example",
            "b%C3%BCcher",
            "bücher.example",
            "a\tb",
            &long,
        ] {
            assert_eq!(Host::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Host::parse(b"a\xff"), None);
    }

    #[test]
    fn a_name_of_public_dns_is_trusted_only_where_it_is_listed() {
        let allowed = ["battle.example".to_owned(), "*.runs.example".to_owned()];
        for text in [
            "localhost",
            "app.localhost",
            "127.0.0.1",
            "192.0.2.1:80",
            "[2001:db8::1]",
            "runner",
            "runner-python.ns.svc",
            "cofferdam.ns.svc.cluster.local",
            "battle.example",
            "BATTLE.example.:443",
            "a.runs.example",
            "a.b.runs.example",
        ] {
            assert!(host(text).is_trusted(&allowed), "{text:?}");
        }
        for text in [
            "attacker.example",
            "localhost.attacker.example",
            "xlocalhost.example",
            "a.xlocalhost",
            "127.0.0.1.attacker.example",
            "x.battle.example",
            "runs.example",
            "xruns.example",
            "a.local",
            "a.cluster.local",
            "svc.cluster.local.attacker.example",
            "xsvc.example",
        ] {
            assert!(!host(text).is_trusted(&allowed), "{text:?}");
        }
    }

    #[test]
    fn a_rule_is_a_name_or_all_below_one() {
        for text in ["battle.example", "*.battle.example", "runner", "*.internal"] {
            assert!(is_rule(text), "{text:?}");
        }
        for text in
            ["", "*", "*.", "*.*.example", "a.*", "Battle.example", "a:80", "10.0.0.1", "http://a"]
        {
            assert!(!is_rule(text), "{text:?}");
        }
    }
}
