//! The host of a request: a name, or an address in one of its many spellings.
//!
//! The C library's resolver takes `127.1`, `0x7f000001`, `017700000001` and `2130706433` for the same
//! address. What it might take for an address is never judged as a name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name in bytes: the limit of DNS.
const HOST_BYTES_MAX: usize = 253;
/// The longest label of a name in bytes.
const HOST_LABEL_BYTES_MAX: usize = 63;

/// The host that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedHost {
    /// A name in lower case, without the dot that may end it.
    Name(String),
    /// An address. One of IPv4 that is mapped into IPv6 is the one of IPv4.
    Address(IpAddr),
    /// Text that could be taken for an address, and stands for none that can be judged: a number too
    /// large, a part too many, a zone.
    Numeric(String),
}

impl AskedHost {
    /// Parses the host of a URI, with the brackets of an IPv6 address. Returns `None` if it is
    /// malformed.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(bracketed) = text.strip_prefix('[') {
            return parse_ipv6(bracketed.strip_suffix(']')?);
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if !is_name(&name) {
            return None;
        }
        Some(match parse_ipv4(&name) {
            Some(address) => Self::Address(address.into()),
            None if ends_in_a_number(&name) => Self::Numeric(name),
            None => Self::Name(name),
        })
    }

    /// Returns the address, if the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Name(_) | Self::Numeric(_) => None,
        }
    }
}

impl fmt::Display for AskedHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(text) | Self::Numeric(text) => out.write_str(text),
            Self::Address(address) => address.fmt(out),
        }
    }
}

/// Returns whether `text` is labels of letters, digits, `-` and `_` in lower case, divided by dots.
pub fn is_name(text: &str) -> bool {
    let is_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_label = |label: &str| {
        (1..=HOST_LABEL_BYTES_MAX).contains(&label.len()) && label.bytes().all(is_byte)
    };
    text.len() <= HOST_BYTES_MAX && text.split('.').all(is_label)
}

/// Returns whether the last label of `name` is a number, so that a resolver may take the whole for an
/// address.
pub fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x");
    let is_hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    last.bytes().all(|byte| byte.is_ascii_digit()) || hexadecimal.is_some_and(is_hexadecimal)
}

/// Parses an IPv4 address as `inet_aton` does: one to four parts, each decimal, octal or hexadecimal; the
/// last fills the bytes that are left.
fn parse_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').collect();
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 {
        return None;
    }
    let mut bits: u32 = 0;
    for (part, shift) in leading.iter().zip([24, 16, 8]) {
        bits |= u32::from(u8::try_from(parse_number(part)?).ok()?) << shift;
    }
    let last = parse_number(last)?;
    let bytes_left = 4 - u32::try_from(leading.len()).ok()?;
    if u64::from(last) >= 1_u64 << (8 * bytes_left) {
        return None;
    }
    Some(Ipv4Addr::from_bits(bits | last))
}

fn parse_number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    if digits.is_empty() && radix == 16 {
        return Some(0);
    }
    let is_digits = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    u32::from_str_radix(digits, radix).ok().filter(|_| is_digits)
}

fn parse_ipv6(text: &str) -> Option<AskedHost> {
    let (address, zone) = text.split_at(text.find('%').unwrap_or(text.len()));
    let address: Ipv6Addr = address.parse().ok()?;
    if !zone.is_empty() {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%-._~".contains(&byte);
        let fits = zone.len() <= HOST_LABEL_BYTES_MAX && zone.bytes().all(is_plain);
        return fits.then(|| AskedHost::Numeric(format!("{address}{zone}")));
    }
    Some(AskedHost::Address(address.to_canonical()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("127.0.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0X7F.0x0.0x.0x1", "127.0.0.1"),
            ("017700000001", "127.0.0.1"),
            ("0177.0.0.01", "127.0.0.1"),
            ("0", "0.0.0.0"),
            ("00.00", "0.0.0.0"),
            ("1.2.772", "1.2.3.4"),
            ("4294967295", "255.255.255.255"),
            ("[::1]", "::1"),
            ("[0:0:0:0:0:0:0:1]", "::1"),
            ("[::ffff:127.0.0.1]", "127.0.0.1"),
            ("[::FFFF:7f00:1]", "127.0.0.1"),
            ("[2001:DB8::A]", "2001:db8::a"),
        ] {
            let expected = AskedHost::Address(address.parse().unwrap());
            assert_eq!(AskedHost::parse(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn what_only_resembles_an_address_is_never_a_name() {
        for text in [
            "256.0.0.1",
            "1.2.3.4.5",
            "1.2.3.999",
            "1.2.65536",
            "4294967296",
            "0x100000000",
            "08.0.0.1",
            "a.0x7f",
            "pypi.org.1",
            "[fe80::1%25eth0]",
            "[fe80::1%1]",
        ] {
            let parsed = AskedHost::parse(text);
            assert!(!matches!(parsed, Some(AskedHost::Name(_)) | None), "{text:?}: {parsed:?}");
        }
    }

    #[test]
    fn a_name_is_in_lower_case_without_its_final_dot() {
        let long = format!("{}a", "a.".repeat(126));
        for (text, name) in [
            ("PyPI.org", "pypi.org"),
            ("pypi.org.", "pypi.org"),
            ("localhost", "localhost"),
            ("a_b-1.xn--bcher-kva.example", "a_b-1.xn--bcher-kva.example"),
            ("1.2.3.4.example", "1.2.3.4.example"),
            ("0x7g", "0x7g"),
            (&long, &long),
        ] {
            let expected = AskedHost::Name(name.to_owned());
            assert_eq!(AskedHost::parse(text), Some(expected), "{text:?}");
        }
    }

    #[test]
    fn a_malformed_host_is_none() {
        let (label, long) = ("a".repeat(64), "a.".repeat(127) + "a");
        for text in [
            "",
            ".",
            "..",
            "a..",
            ".a",
            "a..b",
            "a b",
            "a@b",
            "a/b",
            "a%2eb",
            "a:80",
            "bücher.example",
            "*.example",
            "[::1",
            "::1]",
            "[]",
            "[127.0.0.1]",
            "[::1%25a b]",
            "[::g]",
            "a\0",
            "a,b",
            "+1",
            &label,
            &long,
        ] {
            assert_eq!(AskedHost::parse(text), None, "{text:?}");
        }
    }

    fn number(value: u32, radix: usize) -> String {
        match radix % 4 {
            0 => format!("{value}"),
            1 => format!("0{value:o}"),
            2 => format!("0x{value:x}"),
            _ => format!("0X{value:08X}"),
        }
    }

    proptest! {
        #[test]
        fn an_address_is_read_from_any_mixture_of_spellings(
            bits in any::<u32>(), parts in 1_u32..=4, radixes in any::<[usize; 4]>(), dot in any::<bool>(),
        ) {
            let last = number(bits & u32::MAX >> (8 * (parts - 1)), radixes[3]);
            let leading = bits.to_be_bytes().into_iter().zip(radixes).take(parts as usize - 1);
            let leading: String =
                leading.map(|(byte, radix)| number(byte.into(), radix) + ".").collect();
            let text = leading + &last + if dot { "." } else { "" };
            let expected = AskedHost::Address(Ipv4Addr::from_bits(bits).into());
            prop_assert_eq!(AskedHost::parse(&text), Some(expected), "{}", text);
        }

        #[test]
        fn no_text_is_both_a_name_and_a_number(text in "[0-9a-fx.]{1,16}") {
            if let Some(AskedHost::Name(name)) = AskedHost::parse(&text) {
                prop_assert!(!ends_in_a_number(&name) && name.parse::<IpAddr>().is_err());
            }
        }
    }
}
