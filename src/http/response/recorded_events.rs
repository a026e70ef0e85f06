//! The events of a record, as server-sent events.
//!
//! They are read from the record's file after the client has taken the ones before. A client that reads slowly
//! delays nothing and holds one piece in memory.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::event_body::EventSource;
use super::event_lines::EventLines;
use super::file_pieces::read_piece;
use super::sse::event;
use crate::evaluation::service::EventsProgress;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The id of the last event that the client has; 0 if it has none.
pub fn last_event_id(headers: &HeaderMap) -> u64 {
    let mut ids = headers.get_all(LAST_EVENT_ID).iter();
    let id = ids.next().filter(|_| ids.next().is_none()).and_then(|id| id.to_str().ok());
    let is_number = |id: &&str| id.bytes().all(|byte| byte.is_ascii_digit());
    id.filter(is_number).and_then(|id| id.parse().ok()).unwrap_or(0)
}

/// A record that a client follows.
pub struct RecordedEvents {
    /// What it is of, for the log.
    what: &'static str,
    file: Arc<File>,
    /// How many bytes of the file were read.
    read_bytes: u64,
    lines: EventLines,
    progress: watch::Receiver<EventsProgress>,
    ping_every: Duration,
    _permit: OwnedSemaphorePermit,
}

impl RecordedEvents {
    /// Follows the lines of `file`, as far as `progress` says, after the event `after`. The permit is held meanwhile.
    pub fn new(
        what: &'static str,
        (file, progress): (File, watch::Receiver<EventsProgress>),
        after: u64,
        ping_every: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (file, lines) = (Arc::new(file), EventLines::new(after));
        Self { what, file, read_bytes: 0, lines, progress, ping_every, _permit: permit }
    }

    /// Reads the next piece, of which nothing may be for this client. Returns `None` if the events cannot
    /// be read.
    async fn read(&mut self, left_bytes: u64) -> Option<Vec<u8>> {
        let what = self.what;
        let read = read_piece(&self.file, self.read_bytes, left_bytes).await;
        let piece = match read.map_err(std::io::Error::other).flatten() {
            Ok(piece) if !piece.is_empty() => piece,
            Ok(_) => {
                log::error!("the events of {what} end too early");
                return None;
            }
            Err(error) => {
                log::error!("the events of {what} cannot be read: {error}");
                return None;
            }
        };
        self.read_bytes += piece.len() as u64;
        let converted = self.lines.push(&piece);
        converted.inspect_err(|_| log::error!("the events of {what} are malformed")).ok()
    }
}

impl EventSource for RecordedEvents {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            // In this order: if the sender is gone, the value read after it is final.
            let is_final = self.progress.has_changed().is_err();
            let EventsProgress { bytes, ended } = *self.progress.borrow_and_update();
            let left_bytes = bytes.saturating_sub(self.read_bytes);
            if left_bytes > 0 {
                let events = self.read(left_bytes).await?;
                if !events.is_empty() {
                    return Some(events.into());
                }
                continue;
            }
            if ended || is_final {
                return None;
            }
            // All lines are whole here, so that a ping stands between events.
            if timeout(self.ping_every, self.progress.changed()).await.is_err() {
                return Some(event("ping", None, &json!({})).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_foreign_event_id_means_the_beginning() {
        for (ids, after) in [
            (&["7"][..], 7),
            (&[], 0),
            (&[""], 0),
            (&["-1"], 0),
            (&["+1"], 0),
            (&["o1.e2"], 0),
            (&["99999999999999999999999"], 0),
            (&["1", "2"], 0),
        ] {
            let mut headers = HeaderMap::new();
            for id in ids {
                headers.append(LAST_EVENT_ID, HeaderValue::from_static(id));
            }
            assert_eq!(last_event_id(&headers), after, "{ids:?}");
        }
    }
}
