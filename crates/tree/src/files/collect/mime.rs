//! Guesses a MIME type from the beginning of a file's contents, as the WHATWG's "MIME Sniffing" says.

/// The most bytes that a guess needs.
pub(super) const SNIFF_BYTES_MAX: usize = 512;

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";
const HTML: &str = "text/html; charset=utf-8";
const XML: &str = "text/xml; charset=utf-8";

/// The tags at which a page starts, in capital letters.
const TAGS: [&[u8]; 17] = [
    b"<!DOCTYPE HTML",
    b"<HTML",
    b"<HEAD",
    b"<SCRIPT",
    b"<IFRAME",
    b"<H1",
    b"<DIV",
    b"<FONT",
    b"<TABLE",
    b"<A",
    b"<STYLE",
    b"<TITLE",
    b"<B",
    b"<BODY",
    b"<BR",
    b"<P",
    b"<!--",
];

/// Bytes at the start of a file, and its type. `.` in [`WITH_LENGTH`] is any byte.
const EXACT: [(&[u8], &str); 26] = [
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xef\xbb\xbf", TEXT),
    (b"\0\0\x01\0", "image/x-icon"),
    (b"\0\0\x02\0", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"ID3", "audio/mpeg"),
    (b"OggS\0", "application/ogg"),
    (b"MThd\0\0\0\x06", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"\0\x01\0\0", "font/ttf"),
    (b"OTTO", "font/otf"),
    (b"ttcf", "font/collection"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"Rar!\x1a\x07\0", "application/x-rar-compressed"),
    (b"Rar!\x1a\x07\x01\0", "application/x-rar-compressed"),
    (b"\0asm", "application/wasm"),
];

/// Four bytes, four of a length, then these.
const WITH_LENGTH: [(&[u8], &[u8], &str); 4] = [
    (b"RIFF", b"WEBPVP", "image/webp"),
    (b"FORM", b"AIFF", "audio/aiff"),
    (b"RIFF", b"AVI ", "video/avi"),
    (b"RIFF", b"WAVE", "audio/wave"),
];

/// The MIME type of a file that begins with `content`.
pub(super) fn sniff(content: &[u8]) -> &'static str {
    let content = content.get(..SNIFF_BYTES_MAX).unwrap_or(content);
    let is_blank = |byte: &u8| matches!(byte, b'\t' | b'\n' | 0x0c | b'\r' | b' ');
    let start = content.iter().position(|byte| !is_blank(byte)).unwrap_or(content.len());
    let text = content.get(start..).unwrap_or_default();
    if TAGS.iter().any(|tag| is_tag(text, tag)) {
        return HTML;
    }
    if text.starts_with(b"<?xml") {
        return XML;
    }
    if let Some((_, found)) = EXACT.iter().find(|(magic, _)| content.starts_with(magic)) {
        return found;
    }
    let after = content.get(8..).unwrap_or_default();
    let has_length = |(start, end, _): &&(&[u8], &[u8], &str)| {
        content.starts_with(start) && after.starts_with(end)
    };
    if let Some((_, _, found)) = WITH_LENGTH.iter().find(has_length) {
        return found;
    }
    if is_mp4(content) {
        return "video/mp4";
    }
    let is_binary = |byte: &u8| matches!(byte, 0..=0x08 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if text.iter().any(is_binary) { BINARY } else { TEXT }
}

/// Whether `text` begins with `tag` in letters of any case, and the tag ends there.
fn is_tag(text: &[u8], tag: &[u8]) -> bool {
    let begins = text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    begins && matches!(text.get(tag.len()), Some(b' ' | b'>'))
}

/// Whether the first box of `content` names a brand of MP4.
fn is_mp4(content: &[u8]) -> bool {
    let Some((length, rest)) = content.split_first_chunk::<4>() else { return false };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if !rest.starts_with(b"ftyp") || !length.is_multiple_of(4) {
        return false;
    }
    let Some(brands) = content.get(8..length) else { return false };
    // The second is a version.
    brands.chunks(4).enumerate().any(|(at, brand)| at != 1 && brand.starts_with(b"mp4"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_guessed_from_the_beginning() {
        for (content, mime) in [
            (&b""[..], TEXT),
            (b"hello\n", TEXT),
            ("ümlaut\x1b[0m".as_bytes(), TEXT),
            (b"{\"a\": 1}", TEXT),
            (b"a\0b", BINARY),
            (b"\x01\x02", BINARY),
            (b" \n<html>", HTML),
            (b"<!doctype html>", HTML),
            (b"<HtMl lang>", HTML),
            (b"<htmlx>", TEXT),
            (b"<html", TEXT),
            (b"<!-- x", HTML),
            (b"<p>", HTML),
            (b"<pre>", TEXT),
            (b"\r\n<?xml version", XML),
            (b"%PDF-1.7", "application/pdf"),
            (b"%!PS-Adobe-3", "application/postscript"),
            (b"\xef\xbb\xbfx", TEXT),
            (b"\xfe\xff\0x", "text/plain; charset=utf-16be"),
            (b"\xff\xfex\0", "text/plain; charset=utf-16le"),
            (b"\x89PNG\r\n\x1a\nx", "image/png"),
            (b"\x89PNG\n", TEXT),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"GIF88a", TEXT),
            (b"BMx", "image/bmp"),
            (b"\0\0\x01\0", "image/x-icon"),
            (b"RIFF\x04\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\x04\0\0\0WAVEfmt ", "audio/wave"),
            (b"RIFF\x04\0\0\0AVI x", "video/avi"),
            (b"RIFFxxxxELSE", TEXT),
            (b"FORM\x04\0\0\0AIFFx", "audio/aiff"),
            (b"ID3\x03", "audio/mpeg"),
            (b"OggS\0", "application/ogg"),
            (b"\x1a\x45\xdf\xa3", "video/webm"),
            (b"\0\0\0\x10ftypmp42\0\0\0\0", "video/mp4"),
            (b"\0\0\0\x14ftypisom\0\0\0\0mp41", "video/mp4"),
            (b"\0\0\0\x10ftypisommp42", BINARY),
            (b"\0\0\0\x10ftypmp4", BINARY),
            (b"\0\0\0\x11ftypmp42\0\0\0\0x", BINARY),
            (b"\x1f\x8b\x08", "application/x-gzip"),
            (b"PK\x03\x04", "application/zip"),
            (b"\0asm\x01", "application/wasm"),
            (b"wOF2", "font/woff2"),
        ] {
            assert_eq!(sniff(content), mime, "{:?}", String::from_utf8_lossy(content));
        }
        let long = [vec![b'x'; SNIFF_BYTES_MAX], vec![0]].concat();
        assert_eq!(sniff(&long), TEXT, "only the beginning counts");
        assert_eq!(sniff(&long[1..]), BINARY);
    }
}
