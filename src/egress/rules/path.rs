//! The one form of a path that is judged and sent.

use std::fmt::Write;

use cofferdam_core::weakened::{self, Wall};
use percent_encoding::percent_decode_str;

/// Returns the path that is sent for `raw`, without a query: dot segments resolved, unreserved characters
/// decoded, other escapes in upper case. Returns `None` if servers could read it in two ways.
pub fn canonical_path(raw: &str) -> Option<String> {
    let raw = if raw.is_empty() { "/" } else { raw };
    if !raw.starts_with('/') {
        return None;
    }
    if weakened::lacks(Wall::Canonical) {
        return Some(raw.to_owned());
    }
    let normal = normalize_escapes(raw)?;
    // Some servers cut what is behind the `;` before they resolve dots.
    let is_ambiguous = |segment: &str| segment.starts_with(".;") || segment.starts_with("..;");
    (!normal.split('/').any(is_ambiguous)).then(|| resolve_dots(&normal))
}

/// Decodes escaped characters that need no escape, and writes all other escapes in one way. Returns `None`
/// for a broken escape, `%2f`, `%5c`, `%00`, a backslash or a control character.
pub fn normalize_escapes(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let escaped = match byte {
            b'%' => Some(hex_digit(bytes.next()?)? << 4 | hex_digit(bytes.next()?)?),
            b'\\' | 0..=b' ' | 0x7f => return None,
            0x80.. => Some(byte),
            _ => None,
        };
        match escaped {
            None => out.push(char::from(byte)),
            Some(b'/' | b'\\' | 0) => return None,
            Some(value) if is_unreserved(value) => out.push(char::from(value)),
            // Writing to a string does not fail.
            Some(value) => write!(out, "%{value:02X}").ok()?,
        }
    }
    Some(out)
}

fn hex_digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Whether `byte` means the same with and without an escape in every part of a URI.
pub fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Resolves `.` and `..` as RFC 3986 does.
fn resolve_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => {
                kept.push(other);
                continue;
            }
        }
        if is_last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// What lenient servers may make of a canonical path, for rules that deny: parameters cut, runs of `/` as
/// one, escapes decoded, in lower case.
pub fn folded_forms(path: &str) -> Vec<String> {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    let mut forms = vec![fold(path)];
    for text in [path, &*decoded] {
        let cut: Vec<&str> =
            text.split('/').map(|segment| segment.split(';').next().unwrap_or_default()).collect();
        let form = fold(&resolve_dots(&merge_slashes(&cut.join("/"))));
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// A text without escapes, with runs of `/` as one, in lower case.
pub fn fold(text: &str) -> String {
    merge_slashes(&percent_decode_str(text).decode_utf8_lossy()).to_lowercase()
}

fn merge_slashes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character != '/' || !out.ends_with('/') {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_judged_is_what_is_sent() {
        for (raw, sent) in [
            ("", "/"),
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/%2e/b", "/b"),
            ("/a%41%7e%2D", "/aA~-"),
            ("/a%20b%c3%a9", "/a%20b%C3%A9"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/a%252fb", "/a%252fb"),
            ("/a%252e%252e/b", "/a%252e%252e/b"),
            ("//a//b/", "//a//b/"),
            ("/a//../b", "/a/b"),
            ("/a;x/b", "/a;x/b"),
            ("/...", "/..."),
            ("/a/..b/.c", "/a/..b/.c"),
            ("/a+b&c=d:@!$'()*,", "/a+b&c=d:@!$'()*,"),
        ] {
            assert_eq!(canonical_path(raw).as_deref(), Some(sent), "{raw:?}");
        }
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_refused() {
        for raw in [
            "a",
            "*",
            "/a%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a%5C",
            "/a%00",
            "/a\\b",
            "/%",
            "/%4",
            "/%4g",
            "/%+1",
            "/a b",
            "/a\n",
            "/..;/b",
            "/a/.;x/b",
            "/%2e%2e;a=b/",
            "/a/..;",
        ] {
            assert_eq!(canonical_path(raw), None, "{raw:?}");
        }
    }

    #[test]
    fn what_a_lenient_server_sees_is_among_the_folded_forms() {
        for (path, form) in [
            ("/admin/x", "/admin/x"),
            ("/ADMIN/x", "/admin/x"),
            ("//admin///x", "/admin/x"),
            ("/admin;a=b/x", "/admin/x"),
            ("/;a/admin/x", "/admin/x"),
            ("/admin%3Ba/x", "/admin/x"),
            ("/adm%C3%8An/", "/adm\u{ea}n/"),
            ("/a%21b", "/a!b"),
        ] {
            assert!(
                folded_forms(path).contains(&form.to_owned()),
                "{path}: {:?}",
                folded_forms(path)
            );
        }
    }

    proptest! {
        #[test]
        fn a_canonical_path_stays_as_it_is(raw in "/[a-z./%;2eEfF5c0-9]{0,24}") {
            if let Some(sent) = canonical_path(&raw) {
                prop_assert_eq!(canonical_path(&sent), Some(sent.clone()), "{}", raw);
                prop_assert!(!sent.split('/').any(|segment| segment == "." || segment == ".."));
            }
        }
    }
}
