//! Finds where a chunked body ends in the bytes of a connection.

/// The maximum length of a chunk-size or trailer line in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkPart {
    #[default]
    SizeLine,
    Data {
        left: u64,
    },
    DataLineEnd,
    TrailerLine,
    End,
    /// The bytes violate the grammar of RFC 9112. Nothing after them is parsed as a request.
    Malformed,
}

/// Follows a chunked body without decoding it, which hyper does. Finds the end of the message and
/// detects malformed bodies, because hyper accepts more than the grammar allows.
#[derive(Debug, Default)]
pub struct ChunkScan {
    expect: ChunkPart,
    line: Vec<u8>,
}

impl ChunkScan {
    /// Returns whether the last chunk and its trailers have been scanned.
    pub fn is_over(&self) -> bool {
        self.expect == ChunkPart::End
    }

    /// Returns whether the body is malformed.
    pub fn is_malformed(&self) -> bool {
        self.expect == ChunkPart::Malformed
    }

    /// Returns how many bytes at the start of `bytes` belong to the body: all of them, unless the
    /// body ends among them.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.expect {
                ChunkPart::End => break,
                ChunkPart::Malformed => rest = &[],
                ChunkPart::Data { left } => {
                    let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    rest = rest.get(here..).unwrap_or_default();
                    self.expect = match left - here as u64 {
                        0 => ChunkPart::DataLineEnd,
                        left => ChunkPart::Data { left },
                    };
                }
                ChunkPart::SizeLine | ChunkPart::DataLineEnd | ChunkPart::TrailerLine => {
                    rest = self.take_line(rest);
                }
            }
        }
        bytes.len() - rest.len()
    }

    /// Adds the bytes of the current line and returns the rest.
    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let (of_line, rest) = bytes.split_at(newline.map_or(bytes.len(), |at| at + 1));
        if self.line.len() + of_line.len() > LINE_BYTES_MAX {
            self.expect = ChunkPart::Malformed;
            return rest;
        }
        self.line.extend_from_slice(of_line);
        if newline.is_some() {
            self.expect = self.behind_line();
            self.line.clear();
        }
        rest
    }

    /// Returns what follows the complete line.
    fn behind_line(&self) -> ChunkPart {
        let Some(line) = self.line.strip_suffix(b"\r\n") else { return ChunkPart::Malformed };
        match (self.expect, line) {
            (ChunkPart::SizeLine, line) => match chunk_size(line) {
                None => ChunkPart::Malformed,
                Some(0) => ChunkPart::TrailerLine,
                Some(left) => ChunkPart::Data { left },
            },
            (ChunkPart::DataLineEnd, []) => ChunkPart::SizeLine,
            (ChunkPart::TrailerLine, []) => ChunkPart::End,
            (ChunkPart::TrailerLine, line) if is_field(line) => ChunkPart::TrailerLine,
            _ => ChunkPart::Malformed,
        }
    }
}

/// Parses the size at the start of a chunk's line. Anything after it must be valid extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, mut rest) = line.split_at_checked(digits)?;
    while !rest.is_empty() {
        rest = behind_extension(rest)?;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Skips the extension at the start of `line`: `;name`, `;name=value` or `;name="value"`. White
/// space around it, which RFC 9112 calls bad, is refused.
fn behind_extension(line: &[u8]) -> Option<&[u8]> {
    let rest = behind_token(line.strip_prefix(b";")?)?;
    let Some(value) = rest.strip_prefix(b"=") else { return Some(rest) };
    match value.strip_prefix(b"\"") {
        Some(quoted) => behind_quoted(quoted),
        None => behind_token(value),
    }
}

/// Skips the token at the start of `line`.
fn behind_token(line: &[u8]) -> Option<&[u8]> {
    let length = line.iter().take_while(|byte| is_token_byte(**byte)).count();
    line.get(length..).filter(|_| length > 0)
}

/// Skips quoted text whose opening quote precedes `line`.
fn behind_quoted(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line;
    loop {
        rest = match rest {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] if is_text_byte(*byte) => rest,
            _ => return None,
        };
    }
}

/// Returns whether `line` is a header field: a name, a colon directly after it, and a value without
/// control bytes.
fn is_field(line: &[u8]) -> bool {
    let value = behind_token(line).and_then(|rest| rest.strip_prefix(b":"));
    value.is_some_and(|value| value.iter().all(|byte| is_text_byte(*byte)))
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns whether `byte` is a tab or not a control byte.
fn is_text_byte(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_body_ends_after_its_trailers() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A;name=value\r\n0123456789\r\n00\r\nx-sum: 1\r\n\r\n",
            "1;a;b=c;d=\"e \\\" ;=é\"\r\n\n\r\n0;last\r\n\r\n",
            "0\r\na:\r\nb: c\td \r\n\r\n",
        ] {
            let mut scan = ChunkScan::default();
            let bytes = format!("{body}GET /");
            assert_eq!(scan.advance(bytes.as_bytes()), body.len(), "{body:?}");
            assert!(scan.is_over());
            assert_eq!(scan.advance(b"GET /"), 0);
        }
    }

    #[test]
    fn nothing_after_malformed_chunks_is_a_request() {
        let endless = "0".repeat(LINE_BYTES_MAX + 1);
        for body in [
            "x\r\n",
            "-1\r\n",
            "\r\n",
            "1\r\nab\r\n",
            "11111111111111111\r\n",
            "5 \r\n",
            "5\t\r\n",
            " 5\r\n",
            "5;\r\n",
            "5;;a\r\n",
            "5;a;\r\n",
            "5; a\r\n",
            "5 ;a\r\n",
            "5;a=\r\n",
            "5;a =b\r\n",
            "5;a= b\r\n",
            "5;a=b c\r\n",
            "5;a[=b\r\n",
            "5;a=b]\r\n",
            "5;=b\r\n",
            "5;a=\"b\r\n",
            "5;a=\"b\\\r\n",
            "5;a=\"b\"c\r\n",
            "5;a=\"\x01\"\r\n",
            "5;a=\rb\r\n",
            "5\r\r\n",
            "5\n",
            "5;a\n",
            "1\r\nx\n0\r\n\r\n",
            "1\r\nx \r\n0\r\n\r\n",
            "0\r\na\r\n\r\n",
            "0\r\na : b\r\n\r\n",
            "0\r\n: b\r\n\r\n",
            "0\r\n folded\r\n\r\n",
            "0\r\na: b\rc: d\r\n\r\n",
            "0\r\na: b\n\r\n",
            "0\r\n\n",
            &endless,
        ] {
            let mut scan = ChunkScan::default();
            let bytes = format!("{body}\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
            assert_eq!(scan.advance(bytes.as_bytes()), bytes.len(), "{body:?}");
            assert!(!scan.is_over() && scan.is_malformed(), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn the_end_is_the_same_however_the_bytes_arrive(cuts in proptest::collection::vec(1_usize..9, 1..40)) {
            let body = b"5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\na: b\r\n\r\nGET /next";
            let (mut scan, mut taken, mut rest) = (ChunkScan::default(), 0, &body[..]);
            for size in cuts.iter().cycle() {
                if rest.is_empty() || scan.is_over() {
                    break;
                }
                let (piece, behind) = rest.split_at((*size).min(rest.len()));
                taken += scan.advance(piece);
                rest = behind;
            }
            prop_assert!(scan.is_over());
            prop_assert_eq!(taken, body.len() - b"GET /next".len());
        }
    }
}
