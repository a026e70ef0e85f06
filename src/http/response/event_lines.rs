//! From the lines of a file of events to server-sent events, in pieces of any size (pure).

/// What stands before an event's data in its line.
const DATA: &[u8] = b",\"data\":";
/// The longest text before an event's data, bytes.
const HEAD_BYTES_MAX: usize = 256;

/// A line is not what the service writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedEvents;

/// Converts lines `{"id":1,"event":"step","data":{}}`. The data passes through as it is: it has no line
/// end, and no piece of it is kept but one byte.
#[derive(Debug)]
pub struct EventLines {
    /// Events up to this one are left out.
    after: u64,
    part: LinePart,
}

#[derive(Debug)]
enum LinePart {
    /// Before the data.
    Head(Vec<u8>),
    /// Data that is sent. The last byte is held: the end of the line's object is not sent.
    Sent(Option<u8>),
    /// Data that is left out.
    LeftOut,
}

impl EventLines {
    /// Converts the lines of a file from its beginning; leaves out the events up to `after`.
    pub fn new(after: u64) -> Self {
        Self { after, part: LinePart::Head(Vec::new()) }
    }

    /// Converts the next bytes.
    ///
    /// # Errors
    /// A line is malformed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, MalformedEvents> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            if let LinePart::Head(head) = &mut self.part {
                head.push(*first);
                rest = behind;
                if head.ends_with(DATA) {
                    let (id, name) = parse_head(head).ok_or(MalformedEvents)?;
                    self.part = if id > self.after {
                        out.extend(format!("event: {name}\nid: {id}\ndata: ").bytes());
                        LinePart::Sent(None)
                    } else {
                        LinePart::LeftOut
                    };
                } else if head.len() > HEAD_BYTES_MAX {
                    return Err(MalformedEvents);
                }
                continue;
            }
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (data, behind) =
                rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, &[]));
            if let (LinePart::Sent(held), [before @ .., last]) = (&mut self.part, data) {
                out.extend(held.replace(*last));
                out.extend_from_slice(before);
            }
            rest = behind;
            if let [_, behind @ ..] = behind {
                if matches!(self.part, LinePart::Sent(_)) {
                    out.extend_from_slice(b"\n\n");
                }
                self.part = LinePart::Head(Vec::new());
                rest = behind;
            }
        }
        Ok(out)
    }
}

/// The id and the name of an event.
fn parse_head(head: &[u8]) -> Option<(u64, &str)> {
    let head = std::str::from_utf8(head.strip_suffix(DATA)?).ok()?;
    let (id, name) = head.strip_prefix("{\"id\":")?.split_once(",\"event\":\"")?;
    let name = name.strip_suffix('"')?;
    let is_word = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    Some((id.parse().ok()?, name)).filter(|_| is_word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINES: &str = "{\"id\":1,\"event\":\"step\",\"data\":{\"step\":\"queued\"}}\n\
                         {\"id\":2,\"event\":\"output\",\"data\":{\"text\":\"a\\n,\\\"data\\\":}}\"}}\n\
                         {\"id\":3,\"event\":\"result\",\"data\":{}}\n";
    const EVENTS: [&str; 3] = [
        "event: step\nid: 1\ndata: {\"step\":\"queued\"}\n\n",
        "event: output\nid: 2\ndata: {\"text\":\"a\\n,\\\"data\\\":}}\"}\n\n",
        "event: result\nid: 3\ndata: {}\n\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn events_are_whole_and_begin_after_the_last_one_whatever_the_pieces(
            after in 0_u64..5, size in 1_usize..40,
        ) {
            let mut lines = EventLines::new(after);
            let pieces = LINES.as_bytes().chunks(size);
            let sent: Vec<u8> = pieces.flat_map(|piece| lines.push(piece).unwrap()).collect();
            let first = usize::try_from(after).unwrap().min(EVENTS.len());
            prop_assert_eq!(String::from_utf8(sent).unwrap(), EVENTS[first..].concat());
        }
    }

    #[test]
    fn a_malformed_line_ends_the_events() {
        for line in [
            "{\"id\":x,\"event\":\"step\",\"data\":{}}\n",
            "{\"id\":1,\"event\":\"a\\nb\",\"data\":{}}\n",
            "{\"id\":1,\"event\":\"\",\"data\":{}}\n",
            "{\"event\":\"step\",\"data\":{}}\n",
        ] {
            assert_eq!(EventLines::new(0).push(line.as_bytes()), Err(MalformedEvents), "{line}");
        }
        assert_eq!(EventLines::new(0).push(&[b'x'; 300]), Err(MalformedEvents));
    }
}
