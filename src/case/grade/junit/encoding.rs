//! The text of a report.

use std::borrow::Cow;

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_LITTLE_MARK: &[u8] = b"\xff\xfe";
const UTF16_BIG_MARK: &[u8] = b"\xfe\xff";
/// How far into a report its declaration can end, bytes.
const DECLARATION_BYTES_MAX: usize = 200;
/// Names of encodings with one byte for each character, the first 256 of Unicode.
const LATIN_1: [&str; 3] = ["iso-8859-1", "latin1", "latin-1"];

/// The report as text. It is UTF-8, whatever it declares, UTF-16 with a byte order mark, or declared as Latin-1.
pub(super) fn decoded(report: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let unit = |little: bool, pair: &[u8; 2]| match little {
        true => u16::from_le_bytes(*pair),
        false => u16::from_be_bytes(*pair),
    };
    let wide = match (report.strip_prefix(UTF16_LITTLE_MARK), report.strip_prefix(UTF16_BIG_MARK)) {
        (Some(units), _) => Some((units, true)),
        (_, Some(units)) => Some((units, false)),
        _ => None,
    };
    if let Some((bytes, is_little)) = wide {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let text = char::decode_utf16(pairs.iter().map(|pair| unit(is_little, pair)));
        let text: Result<String, _> = text.collect();
        return text.ok().filter(|_| rest.is_empty()).map(Cow::Owned).ok_or("it is not UTF-16");
    }
    let bytes = report.strip_prefix(UTF8_MARK).unwrap_or(report);
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(_) if is_latin_1(bytes) => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Err(_) => Err("it is not UTF-8"),
    }
}

fn is_latin_1(report: &[u8]) -> bool {
    let start = report.get(..DECLARATION_BYTES_MAX).unwrap_or(report);
    let start = String::from_utf8_lossy(start).to_ascii_lowercase();
    let declaration = start.strip_prefix("<?xml").and_then(|rest| rest.split_once("?>"));
    let Some((declaration, _)) = declaration else { return false };
    let Some((_, value)) = declaration.split_once("encoding") else { return false };
    let value = value.trim_start_matches([' ', '=', '"', '\'']);
    let name = value.split(['"', '\'']).next().unwrap_or_default();
    LATIN_1.contains(&name)
}
