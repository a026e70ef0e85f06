//! Reads a stream of server-sent events; keeps a limited part of each line.

use std::io::{self, BufRead, BufReader, Read};

/// How much of a line is kept for clients that use no output, bytes. Longer lines carry output or the
/// result.
const LINE_BYTES_MAX: usize = 64 << 10;

/// One event, with the fields that are used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// The name of the event.
    pub name: String,
    /// The id, which a request for the events after it sends.
    pub id: Option<String>,
    /// The first lines of the data.
    pub data: String,
}

/// Reads events from a response body.
pub struct EventReader<R> {
    source: BufReader<R>,
    /// How much of a line is kept, bytes.
    line_bytes_max: usize,
}

impl<R: Read> EventReader<R> {
    /// A reader of a fresh body that keeps names, ids and short data.
    pub fn new(source: R) -> Self {
        Self::keeping(source, LINE_BYTES_MAX)
    }

    /// A reader that keeps `line_bytes_max` bytes of each line.
    pub fn keeping(source: R, line_bytes_max: usize) -> Self {
        Self { source: BufReader::new(source), line_bytes_max }
    }

    /// The next event; `None` at the end of the stream. An incomplete event is dropped.
    pub fn next(&mut self) -> io::Result<Option<ServerSentEvent>> {
        let mut event = ServerSentEvent::default();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if line.is_empty() {
                if event != ServerSentEvent::default() {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut event.name),
                "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
                "data" if event.data.len() < self.line_bytes_max => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
    }

    /// The next line without its end. Reads the whole line and keeps a limited part.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            let buffer = match self.source.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            if buffer.is_empty() {
                return Ok(None);
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
            let room = self.line_bytes_max.saturating_sub(line.len());
            line.extend_from_slice(taken.get(..room).unwrap_or(taken));
            let count = taken.len() + usize::from(end.is_some());
            self.source.consume(count);
            if end.is_some() {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<ServerSentEvent> {
        let mut events = EventReader::new(text.as_bytes());
        std::iter::from_fn(|| events.next().unwrap()).collect()
    }

    #[test]
    fn events_are_separated_and_comments_are_ignored() {
        let text = ": hello\n\nevent: status\ndata: {\"status\":\"running\"}\n\n\
            event: stdout\r\nid: o12.e3\r\ndata: abc\r\n\r\n\n\ndata:x\ndata: y\nother: z\n\nevent: cut";
        let events = all(text);
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!((events[0].name.as_str(), events[0].id.as_deref()), ("status", None));
        assert_eq!((events[1].id.as_deref(), events[1].data.as_str()), (Some("o12.e3"), "abc"));
        assert_eq!((events[2].name.as_str(), events[2].data.as_str()), ("", "x\ny"));
    }

    #[test]
    fn an_endless_line_uses_limited_memory() {
        let text = format!("data: {}\nevent: result\n\n", "x".repeat(3 * LINE_BYTES_MAX));
        let [event] = all(&text).try_into().unwrap();
        assert!(event.data.len() <= LINE_BYTES_MAX && event.name == "result");
        let many = "data: 0123456789\n".repeat(LINE_BYTES_MAX) + "\n";
        let [event] = all(&many).try_into().unwrap();
        assert!(event.data.len() < 2 * LINE_BYTES_MAX);
    }
}
