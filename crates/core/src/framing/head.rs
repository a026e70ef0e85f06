//! Finds where a request's head ends and how its body is framed.
//!
//! hyper parses the head. This module checks the same bytes first for what hyper accepts silently:
//! a length sent twice, a length together with a transfer coding, a coding before `chunked`. Two
//! readers that disagree on where a message ends make request smuggling possible. Folded lines,
//! white space before a colon, NUL and bare CR are left to hyper, which refuses them with 400.

/// The maximum length of a head in bytes, including the request line and the empty line.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The maximum number of digits in a length. 10^18 bytes is more than any body and fits in `u64`.
const LENGTH_DIGITS_MAX: usize = 18;

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// A length that is not 1 to 18 decimal digits.
    #[error("bad content-length")]
    Length,
    /// More than one length.
    #[error("more than one content-length")]
    Lengths,
    /// A coding other than `chunked` alone.
    #[error("transfer coding not supported")]
    Coding,
    /// A length and a transfer coding.
    #[error("content-length beside transfer-encoding")]
    LengthAndCoding,
    /// hyper found a head where this module found none.
    #[error("ambiguous end of message")]
    Ambiguous,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes.
    Length(u64),
    /// By its chunks.
    Chunked,
}

/// Returns the length of the head at the start of `bytes`, including its empty line, or `None` if
/// it is incomplete. `scanned` is how many bytes an earlier call has checked.
pub fn end(bytes: &[u8], scanned: usize) -> Option<usize> {
    // Empty lines before the request line belong to the head, as in hyper.
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    // The end of a head is up to three bytes long, and an earlier call may have checked some of
    // them.
    let from = start.max(scanned.saturating_sub(3));
    let mut lines = bytes.iter().enumerate().skip(from).filter(|(_, byte)| **byte == b'\n');
    lines.find_map(|(at, _)| match bytes.get(at + 1..)? {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// Returns how the body after `head` is framed, or why the head is refused.
pub fn framing(head: &[u8]) -> Result<Framing, HeadError> {
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let (mut length, mut chunked) = (None, false);
    for line in lines.skip_while(|line| line.is_empty()).skip(1).take_while(|l| !l.is_empty()) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let again = length.replace(parse_length(value)?).is_some();
            if again {
                return Err(HeadError::Lengths);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::Coding);
            }
            chunked = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(HeadError::LengthAndCoding),
        (None, true) => Ok(Framing::Chunked),
        (length, false) => Ok(Framing::Length(length.unwrap_or(0))),
    }
}

/// Returns whether the sender of `head` wants to speak WebSocket behind it.
pub fn asks_for_websocket(head: &[u8]) -> bool {
    let lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    lines.skip_while(|line| line.is_empty()).skip(1).any(|line| {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return false };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        let mut protocols = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        name.eq_ignore_ascii_case(b"upgrade")
            && protocols.any(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
    })
}

fn parse_length(value: &[u8]) -> Result<u64, HeadError> {
    let digits = std::str::from_utf8(value).map_err(|_| HeadError::Length)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain || digits.len() > LENGTH_DIGITS_MAX {
        return Err(HeadError::Length);
    }
    digits.parse().map_err(|_| HeadError::Length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_ends_with_its_first_empty_line() {
        for (bytes, length) in [
            (&b"GET / HTTP/1.1\r\n\r\nrest"[..], Some(18)),
            (b"GET / HTTP/1.1\n\nrest", Some(16)),
            (b"\r\n\r\nGET / HTTP/1.1\r\na: b\r\n\r\n", Some(28)),
            (b"GET / HTTP/1.1\r\na: b\r\n\r", None),
            (b"GET / HTTP/1.1\r\n", None),
            (b"\r\n\r\n", None),
            (b"", None),
        ] {
            assert_eq!(end(bytes, 0), length, "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn the_end_is_the_same_however_the_bytes_arrive(
            head in "[a\r\n]{0,40}", cut in 0_usize..40,
        ) {
            let bytes = head.as_bytes();
            let cut = cut.min(bytes.len());
            let whole = end(bytes, 0);
            let found = end(&bytes[..cut], 0).or_else(|| end(bytes, cut));
            prop_assert_eq!(found, whole);
        }
    }

    fn of(headers: &str) -> Result<Framing, HeadError> {
        framing(format!("POST /run HTTP/1.1\r\nhost: x\r\n{headers}\r\n").as_bytes())
    }

    #[test]
    fn plain_framing_is_understood() {
        for (headers, expected) in [
            ("", Framing::Length(0)),
            ("Content-Length: 12\r\n", Framing::Length(12)),
            ("content-length:\t007 \r\n", Framing::Length(7)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
            ("x-content-length: a\r\n", Framing::Length(0)),
        ] {
            assert_eq!(of(headers), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn a_head_asks_for_a_websocket_by_its_upgrade_alone() {
        for (headers, asks) in [
            ("Upgrade: websocket\r\n", true),
            ("upgrade:  h2c , WebSocket\r\n", true),
            ("upgrade: h2c\r\n", false),
            ("x-upgrade: websocket\r\n", false),
            ("connection: upgrade, websocket\r\n", false),
        ] {
            let head = format!("GET / HTTP/1.1\r\nhost: a\r\n{headers}\r\n");
            assert_eq!(asks_for_websocket(head.as_bytes()), asks, "{headers:?}");
        }
    }

    #[test]
    fn every_ambiguous_framing_is_refused() {
        for (headers, fault) in [
            ("content-length: 1\r\ncontent-length: 2\r\n", HeadError::Lengths),
            ("content-length: 1\r\nContent-Length: 1\r\n", HeadError::Lengths),
            ("content-length: 1, 1\r\n", HeadError::Length),
            ("content-length: +1\r\n", HeadError::Length),
            ("content-length: -1\r\n", HeadError::Length),
            ("content-length: 0x1\r\n", HeadError::Length),
            ("content-length: 1a\r\n", HeadError::Length),
            ("content-length: 1 1\r\n", HeadError::Length),
            ("content-length:\r\n", HeadError::Length),
            ("content-length: 0000000000000000001\r\n", HeadError::Length),
            ("transfer-encoding: gzip\r\n", HeadError::Coding),
            ("transfer-encoding: gzip, chunked\r\n", HeadError::Coding),
            ("transfer-encoding: chunked, gzip\r\n", HeadError::Coding),
            ("transfer-encoding: chunked, chunked\r\n", HeadError::Coding),
            ("transfer-encoding: \"chunked\"\r\n", HeadError::Coding),
            ("transfer-encoding: x\x0bchunked\r\n", HeadError::Coding),
            ("transfer-encoding:\r\n", HeadError::Coding),
            ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", HeadError::Coding),
            ("transfer-encoding: chunked\r\ncontent-length: 1\r\n", HeadError::LengthAndCoding),
            ("content-length: 1\r\ntransfer-encoding: chunked\r\n", HeadError::LengthAndCoding),
        ] {
            assert_eq!(of(headers), Err(fault), "{headers:?}");
        }
    }
}
