//! Where a chunked body ends in the bytes of a connection.

/// The longest chunk-size line or trailer line followed, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// What comes next in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expect {
    #[default]
    SizeLine,
    Data {
        left: u64,
    },
    DataLineEnd,
    TrailerLine,
    End,
    /// These are no chunks: hyper will say so, and nothing behind them is a request.
    Malformed,
}

/// Follows a chunked body without decoding it. hyper decodes and judges it;
/// this only says where the message ends.
#[derive(Debug, Default)]
pub struct ChunkScan {
    expect: Expect,
    line: Vec<u8>,
}

impl ChunkScan {
    /// Whether the last chunk and its trailers have gone by.
    pub fn is_over(&self) -> bool {
        self.expect == Expect::End
    }

    /// How many bytes at the start of `bytes` belong to the body; all of them
    /// unless the body ends among them.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.expect {
                Expect::End => break,
                Expect::Malformed => rest = &[],
                Expect::Data { left } => {
                    let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    rest = rest.get(here..).unwrap_or_default();
                    self.expect = match left - here as u64 {
                        0 => Expect::DataLineEnd,
                        left => Expect::Data { left },
                    };
                }
                Expect::SizeLine | Expect::DataLineEnd | Expect::TrailerLine => {
                    rest = self.take_line(rest);
                }
            }
        }
        bytes.len() - rest.len()
    }

    /// Adds to the current line what `bytes` holds of it and returns what is behind.
    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let newline = bytes.iter().position(|byte| *byte == b'\n');
        let (of_line, rest) = bytes.split_at(newline.map_or(bytes.len(), |at| at + 1));
        if self.line.len() + of_line.len() > LINE_BYTES_MAX {
            self.expect = Expect::Malformed;
            return rest;
        }
        self.line.extend_from_slice(of_line);
        if newline.is_some() {
            self.expect = self.behind_line();
            self.line.clear();
        }
        rest
    }

    /// What follows the whole line that was collected.
    fn behind_line(&self) -> Expect {
        let line = self.line.trim_ascii_end();
        match (self.expect, line) {
            (Expect::SizeLine, line) => match chunk_size(line) {
                None => Expect::Malformed,
                Some(0) => Expect::TrailerLine,
                Some(left) => Expect::Data { left },
            },
            (Expect::DataLineEnd, []) => Expect::SizeLine,
            (Expect::TrailerLine, []) => Expect::End,
            (Expect::TrailerLine, _) => Expect::TrailerLine,
            _ => Expect::Malformed,
        }
    }
}

/// The size at the start of a chunk's line; extensions behind it are skipped.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = std::str::from_utf8(line.get(..digits)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_body_ends_behind_its_trailers() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A;name=value\r\n0123456789\r\n00\r\nx-sum: 1\r\n\r\n",
            "1 \r\n\n\r\n0\r\n\r\n",
        ] {
            let mut scan = ChunkScan::default();
            let bytes = format!("{body}GET /");
            assert_eq!(scan.advance(bytes.as_bytes()), body.len(), "{body:?}");
            assert!(scan.is_over());
            assert_eq!(scan.advance(b"GET /"), 0);
        }
    }

    #[test]
    fn nothing_behind_malformed_chunks_is_a_request() {
        let endless = "0".repeat(LINE_BYTES_MAX + 1);
        for body in ["x\r\n", "-1\r\n", "\r\n", "1\r\nab\r\n", "11111111111111111\r\n", &endless] {
            let mut scan = ChunkScan::default();
            let bytes = format!("{body}\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
            assert_eq!(scan.advance(bytes.as_bytes()), bytes.len(), "{body:?}");
            assert!(!scan.is_over());
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
