//! A stream of server-sent events, read line by line; of each line only so much is kept.

use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;

use cofferdam_core::job::JobStatus;

/// As much of a line as is kept, bytes. What is longer is output, or the result, both of which
/// are asked for elsewhere.
const LINE_BYTES_MAX: usize = 64 << 10;

/// One event, as far as anybody here reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// What kind.
    pub name: String,
    /// What to ask for the events after it with.
    pub id: Option<String>,
    /// Its first lines.
    pub data: String,
}

/// Events as they come.
pub struct Events<R> {
    source: BufReader<R>,
}

/// What a `status` event says.
#[derive(Debug, Deserialize)]
struct StatusData {
    status: JobStatus,
}

impl Event {
    /// The state a `status` event tells of.
    pub fn status(&self) -> Option<JobStatus> {
        let data: StatusData = serde_json::from_str(&self.data).ok()?;
        (self.name == "status").then_some(data.status)
    }

    /// How much of stdout and stderr its id says there is behind it: `o12.e3`.
    pub fn offsets(&self) -> Option<(u64, u64)> {
        let (stdout, stderr) = self.id.as_deref()?.strip_prefix('o')?.split_once(".e")?;
        Some((stdout.parse().ok()?, stderr.parse().ok()?))
    }
}

impl<R: Read> Events<R> {
    /// Of a body that has not been read from.
    pub fn new(source: R) -> Self {
        Self { source: BufReader::new(source) }
    }

    /// The next one; none at the stream's end. What an end cuts short is no event.
    pub fn next(&mut self) -> io::Result<Option<Event>> {
        let mut event = Event::default();
        loop {
            let Some(line) = self.line()? else { return Ok(None) };
            if line.is_empty() {
                if event != Event::default() {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => value.clone_into(&mut event.name),
                "id" if !value.contains('\0') => event.id = Some(value.to_owned()),
                "data" if event.data.len() < LINE_BYTES_MAX => {
                    if !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
    }

    /// The next line without its end; the whole of it is read, not kept.
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
            let room = LINE_BYTES_MAX.saturating_sub(line.len());
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

    fn all(text: &str) -> Vec<Event> {
        let mut events = Events::new(text.as_bytes());
        std::iter::from_fn(|| events.next().unwrap()).collect()
    }

    #[test]
    fn events_are_told_apart_and_comments_are_none() {
        let text = ": hello\n\nevent: status\ndata: {\"status\":\"running\"}\n\n\
            event: stdout\r\nid: o12.e3\r\ndata: abc\r\n\r\n\n\ndata:x\ndata: y\nother: z\n\nevent: cut";
        let events = all(text);
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(events[0].status(), Some(JobStatus::Running));
        assert_eq!((events[1].status(), events[1].offsets()), (None, Some((12, 3))));
        assert_eq!((events[2].name.as_str(), events[2].data.as_str()), ("", "x\ny"));
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_its_bound() {
        let text = format!("data: {}\nevent: result\n\n", "x".repeat(3 * LINE_BYTES_MAX));
        let [event] = all(&text).try_into().unwrap();
        assert!(event.data.len() <= LINE_BYTES_MAX && event.name == "result");
        let many = "data: 0123456789\n".repeat(LINE_BYTES_MAX) + "\n";
        let [event] = all(&many).try_into().unwrap();
        assert!(event.data.len() < 2 * LINE_BYTES_MAX);
    }

    #[test]
    fn an_id_that_is_no_pair_of_offsets_says_nothing() {
        for id in ["", "12", "o1", "o1.e", "o.e1", "o1.ex", "o-1.e1", "o99999999999999999999.e1"] {
            let event = Event { id: Some(id.to_owned()), ..Event::default() };
            assert_eq!(event.offsets(), None, "{id}");
        }
    }
}
