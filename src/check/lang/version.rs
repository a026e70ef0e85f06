//! Version numbers of toolchains.

use std::fmt;

/// How many numbers of a version are compared.
const PARTS_MAX: usize = 4;

/// Numbers separated by dots, the most significant first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u32>);

impl Version {
    /// Parses a text that is a version, such as `1.18`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        parts.filter(|parts| parts.len() <= PARTS_MAX).map(Self::of)
    }

    /// The first version in the output of a toolchain, such as `Python 3.13.5`.
    pub fn first_in(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let rest = text.get(start..)?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let parts = rest.get(..end)?.split('.').map_while(|part| part.parse().ok());
        Some(Self::of(parts.take(PARTS_MAX).collect()))
    }

    /// Removes trailing zeros, so that 7 equals 7.0.
    fn of(mut parts: Vec<u32>) -> Self {
        while parts.last() == Some(&0) {
            parts.pop();
        }
        Self(parts)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(if parts.is_empty() { "0" } else { "" })?;
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_toolchains_print() {
        for (line, version) in [
            ("1.14.0", "1.14"),
            ("v26.10.0", "26.10"),
            ("Python 3.13.5", "3.13.5"),
            ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", "12.2"),
            ("go version go1.26.8 linux/amd64", "1.26.8"),
            ("ruby 3.1.7p261 (2025-03-26 revision 0a3704f218)", "3.1.7"),
            ("rustc 1.95.0 (59807616e 2026-04-14)", "1.95"),
            ("javac 21", "21"),
            (".NET 10.0.102", "10.0.102"),
        ] {
            assert_eq!(Version::first_in(line).unwrap().to_string(), version, "{line}");
        }
        assert_eq!(Version::first_in("no number"), None);
        assert_eq!(Version::first_in("99999999999"), Some(Version(Vec::new())));
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        let version = |text| Version::parse(text).unwrap();
        for (less, more) in [("1.9", "1.18"), ("1.18", "1.18.1"), ("7", "7.1"), ("0", "0.1")] {
            assert!(version(less) < version(more), "{less} {more}");
        }
        assert_eq!(version("7"), version("7.0.0"));
        for text in ["", "1.", "1.x", "v1", "-1", "1 2", "1.2.3.4.5"] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }
}
