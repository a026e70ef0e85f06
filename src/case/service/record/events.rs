//! `events.jsonl`: what happens in a run, one event a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;

use crate::case::service::api::CaseRunEvents;
use crate::evaluation::service::EventsProgress;

/// The name of the file.
pub const EVENTS: &str = "events.jsonl";
/// Bytes beyond which only the end of the run is added.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize)]
struct EventLine<'a, T> {
    id: u64,
    event: &'a str,
    data: &'a T,
}

/// Writes the events of one run.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    bytes: u64,
    bytes_max: u64,
    last_id: u64,
    is_full: bool,
    has_ended: bool,
    progress: Option<watch::Sender<EventsProgress>>,
}

impl EventLog {
    /// Goes on after the whole lines of `file`, which is open for reading and writing.
    ///
    /// # Errors
    /// The file cannot be read or cut.
    pub fn open(mut file: File) -> io::Result<Self> {
        let WholeLines { bytes, lines, has_ended } = whole_lines(&mut file)?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::End(0))?;
        let progress = watch::channel(EventsProgress { bytes, ended: false }).0;
        Ok(Self {
            file,
            bytes,
            bytes_max: BYTES_MAX,
            last_id: lines,
            is_full: false,
            has_ended,
            progress: Some(progress),
        })
    }

    /// Follows it by `file`, the same file, open for reading.
    pub fn follow(&self, file: File) -> CaseRunEvents {
        let progress = match &self.progress {
            Some(progress) => progress.subscribe(),
            None => watch::channel(EventsProgress { bytes: self.bytes, ended: true }).1,
        };
        CaseRunEvents { file, progress }
    }

    /// Follows the events of a run that has ended: `bytes` of `file`.
    pub fn ended(file: File, bytes: u64) -> CaseRunEvents {
        let progress = watch::channel(EventsProgress { bytes, ended: true }).1;
        CaseRunEvents { file, progress }
    }

    /// Appends an event. If that fails, the event is lost and the failure is logged.
    pub fn append(&mut self, event: &str, data: &impl Serialize) {
        if self.has_ended || self.is_full {
            return;
        }
        if self.bytes >= self.bytes_max {
            self.is_full = true;
            let data = json!({ "dropped": format!("events beyond {} bytes", self.bytes_max) });
            self.write(event, &data, false);
            return;
        }
        self.write(event, data, false);
    }

    /// Appends the last event, once. Followers get it with [`EventLog::close`].
    pub fn end(&mut self, data: &impl Serialize) {
        if !self.has_ended {
            self.write("result", data, true);
            self.has_ended = true;
        }
    }

    /// Tells followers that nothing will come any more. Who has seen the last event finds the end everywhere, so this
    /// comes after the state of the service has changed.
    pub fn close(&mut self) {
        self.announce(true);
        self.progress = None;
    }

    fn write(&mut self, event: &str, data: &impl Serialize, ends: bool) {
        let line = serde_json::to_vec(&EventLine { id: self.last_id + 1, event, data });
        let written = line.map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            let synced = |file: &mut File| if ends { file.sync_data() } else { Ok(()) };
            self.file.write_all(&line).and_then(|()| synced(&mut self.file)).map(|()| line.len())
        });
        match written {
            Ok(bytes) => {
                self.last_id += 1;
                self.bytes += bytes as u64;
                if !ends {
                    self.announce(false);
                }
            }
            Err(error) => {
                // Half a line must not stay; followers read whole lines only.
                let _ = self.file.set_len(self.bytes);
                let _ = self.file.seek(SeekFrom::Start(self.bytes));
                log::error!(reason = error.to_string(); "event of a run lost");
            }
        }
    }

    fn announce(&self, ended: bool) {
        if let Some(progress) = &self.progress {
            progress.send_replace(EventsProgress { bytes: self.bytes, ended });
        }
    }

    #[cfg(test)]
    fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max;
        self
    }
}

/// What a file of events holds.
#[derive(Default)]
struct WholeLines {
    bytes: u64,
    /// Lines with the ids 1, 2, 3….
    lines: u64,
    /// Whether the last is that of the end.
    has_ended: bool,
}

fn whole_lines(file: &mut File) -> io::Result<WholeLines> {
    let mut found = WholeLines::default();
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while !found.has_ended {
        line.clear();
        let count = reader.by_ref().read_until(b'\n', &mut line)?;
        let prefix = format!("{{\"id\":{},\"event\":\"", found.lines + 1);
        let Some(rest) = line.strip_prefix(prefix.as_bytes()) else { break };
        if line.last() != Some(&b'\n') {
            break;
        }
        found.has_ended = rest.starts_with(b"result\"");
        found.bytes += count as u64;
        found.lines += 1;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &std::path::Path) -> File {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn ids_go_on_after_a_kill_and_half_a_line_is_gone() {
        let scene = tempfile::tempdir().unwrap();
        let path = scene.path().join(EVENTS);
        let mut log = EventLog::open(file(&path)).unwrap();
        log.append("status", &1);
        log.append("cell", &2);
        drop(log);
        let mut half = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        half.write_all(b"{\"id\":3,\"event\":\"ce").unwrap();
        let mut log = EventLog::open(file(&path)).unwrap();
        log.append("cell", &3);
        log.end(&4);
        log.end(&5);
        log.close();
        let wanted = concat!(
            "{\"id\":1,\"event\":\"status\",\"data\":1}\n",
            "{\"id\":2,\"event\":\"cell\",\"data\":2}\n",
            "{\"id\":3,\"event\":\"cell\",\"data\":3}\n",
            "{\"id\":4,\"event\":\"result\",\"data\":4}\n",
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
        assert!(EventLog::open(file(&path)).unwrap().has_ended);
    }

    #[test]
    fn beyond_the_limit_only_the_end_is_added() {
        let scene = tempfile::tempdir().unwrap();
        let path = scene.path().join(EVENTS);
        let mut log = EventLog::open(file(&path)).unwrap().with_bytes_max(60);
        (0..10).for_each(|number| log.append("cell", &number));
        log.end(&"end");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().nth(2).unwrap().contains("dropped"), "{text}");
        assert!(text.ends_with("{\"id\":4,\"event\":\"result\",\"data\":\"end\"}\n"), "{text}");
    }
}
