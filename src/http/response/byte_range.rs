//! Evaluates `Range`, `If-Range`, `If-None-Match` and `If-Match`.

use axum::http::HeaderMap;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE};

/// The part of a file to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// The whole file.
    Whole,
    /// At least one byte.
    Part {
        /// The offset of the first byte.
        from: u64,
        /// The number of bytes.
        bytes: u64,
    },
    /// A range outside the file.
    Unsatisfiable,
}

impl ByteRange {
    /// Evaluates the `Range` in `headers` for a file of `bytes` bytes whose entity tag is `etag`. A
    /// `Range` that is malformed, has several parts or another unit, or is for another version is
    /// ignored.
    pub fn of(headers: &HeaderMap, etag: &str, bytes: u64) -> Self {
        let mut ranges = headers.get_all(RANGE).iter();
        let range = ranges.next().and_then(|range| range.to_str().ok());
        let Some(range) = range.filter(|_| ranges.next().is_none()) else { return Self::Whole };
        // Only a strong tag identifies the exact bytes; a date does not.
        let mut conditions = headers.get_all(IF_RANGE).iter();
        if !conditions.all(|condition| condition.as_bytes() == etag.as_bytes()) {
            return Self::Whole;
        }
        Self::parse(range, bytes).unwrap_or(Self::Whole)
    }

    fn parse(range: &str, bytes: u64) -> Option<Self> {
        let (unit, part) = range.split_once('=')?;
        let (first, last) = part.split_once('-')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = (first.trim_start(), last.trim_end());
        let (from, end) = if first.is_empty() {
            // The last `count` bytes; of an empty file, that is the whole file.
            let count = number(last)?;
            if count > 0 && bytes == 0 {
                return Some(Self::Whole);
            }
            (bytes - count.min(bytes), bytes)
        } else {
            let from = number(first)?;
            let last = if last.is_empty() { u64::MAX } else { number(last)? };
            if last < from {
                return None;
            }
            (from, last.saturating_add(1).min(bytes))
        };
        Some(if from < end { Self::Part { from, bytes: end - from } } else { Self::Unsatisfiable })
    }
}

/// Parses decimal digits. A number that is too large becomes `u64::MAX`.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Returns whether the client already has the version `etag`.
pub fn is_not_modified(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Returns whether `If-Match` excludes the version `etag`. Only a strong tag identifies the exact
/// bytes.
pub fn fails_if_match(headers: &HeaderMap, etag: &str) -> bool {
    let mut values = headers.get_all(IF_MATCH).iter().peekable();
    let is_this = |tag: &str| tag.trim() == "*" || tag.trim() == etag;
    values.peek().is_some()
        && !values.any(|value| value.to_str().is_ok_and(|value| value.split(',').any(is_this)))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const TAG: &str = "\"abc\"";

    fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_range_is_clipped_to_the_file_or_unsatisfiable() {
        let part = |from, bytes| ByteRange::Part { from, bytes };
        for (range, bytes, wanted) in [
            ("bytes=0-0", 10, part(0, 1)),
            ("bytes=0-9", 10, part(0, 10)),
            ("bytes=2-4", 10, part(2, 3)),
            ("bytes=2-", 10, part(2, 8)),
            ("bytes=9-", 10, part(9, 1)),
            ("bytes=5-99", 10, part(5, 5)),
            ("bytes=5-99999999999999999999999", 10, part(5, 5)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=-10", 10, part(0, 10)),
            ("bytes=-99", 10, part(0, 10)),
            ("Bytes=1-1", 10, part(1, 1)),
            ("bytes= 1-1 ", 10, part(1, 1)),
            ("bytes=10-", 10, ByteRange::Unsatisfiable),
            ("bytes=10-12", 10, ByteRange::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, ByteRange::Unsatisfiable),
            ("bytes=18446744073709551615-18446744073709551615", u64::MAX, ByteRange::Unsatisfiable),
            ("bytes=-0", 10, ByteRange::Unsatisfiable),
            ("bytes=0-", 0, ByteRange::Unsatisfiable),
            ("bytes=-0", 0, ByteRange::Unsatisfiable),
            ("bytes=-1", 0, ByteRange::Whole),
            ("bytes=4-2", 10, ByteRange::Whole),
            ("bytes=0-1,3-4", 10, ByteRange::Whole),
            ("bytes=0-1,", 10, ByteRange::Whole),
            ("bytes=-", 10, ByteRange::Whole),
            ("bytes=", 10, ByteRange::Whole),
            ("bytes", 10, ByteRange::Whole),
            ("bytes=a-b", 10, ByteRange::Whole),
            ("bytes=+1-2", 10, ByteRange::Whole),
            ("bytes=1--2", 10, ByteRange::Whole),
            ("bytes=0x1-2", 10, ByteRange::Whole),
            ("lines=1-2", 10, ByteRange::Whole),
            ("", 10, ByteRange::Whole),
        ] {
            assert_eq!(ByteRange::of(&headers(&RANGE, &[range]), TAG, bytes), wanted, "{range:?}");
        }
        let twice = headers(&RANGE, &["bytes=0-0", "bytes=1-1"]);
        assert_eq!(ByteRange::of(&twice, TAG, 10), ByteRange::Whole);
        assert_eq!(ByteRange::of(&HeaderMap::new(), TAG, 10), ByteRange::Whole);
    }

    #[test]
    fn a_range_of_another_version_yields_the_whole_file() {
        for (conditions, is_part) in [
            (&[TAG][..], true),
            (&["\"abd\""], false),
            (&["W/\"abc\""], false),
            (&["abc"], false),
            (&["Sun, 06 Nov 1994 08:49:37 GMT"], false),
            (&[TAG, "\"abd\""], false),
        ] {
            let mut asked = headers(&IF_RANGE, conditions);
            asked.insert(RANGE, HeaderValue::from_static("bytes=1-2"));
            let wanted = ByteRange::of(&asked, TAG, 10);
            assert_eq!(wanted == ByteRange::Part { from: 1, bytes: 2 }, is_part, "{conditions:?}");
        }
    }

    #[test]
    fn if_match_accepts_strong_tags_only() {
        for (values, other) in [
            (&[TAG][..], false),
            (&["*"], false),
            (&["\"x\", \"abc\""], false),
            (&["\"x\"", "\"abc\""], false),
            (&["\"x\""], true),
            (&["W/\"abc\""], true),
            (&["abc"], true),
            (&[""], true),
            (&[], false),
        ] {
            assert_eq!(fails_if_match(&headers(&IF_MATCH, values), TAG), other, "{values:?}");
        }
    }

    #[test]
    fn if_none_match_accepts_every_form_of_a_tag() {
        for (values, has) in [
            (&[TAG][..], true),
            (&["W/\"abc\""], true),
            (&["*"], true),
            (&["\"x\", \"abc\""], true),
            (&["\"x\"", "\"abc\""], true),
            (&["\"x\""], false),
            (&["abc"], false),
            (&[""], false),
            (&[], false),
        ] {
            assert_eq!(is_not_modified(&headers(&IF_NONE_MATCH, values), TAG), has, "{values:?}");
        }
    }
}
