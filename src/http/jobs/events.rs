//! `GET /v1/jobs/{id}/events`: a job's output and state as server-sent events.
//!
//! Each event is made from the job's output files after the client has taken the previous one. A
//! client that reads slowly or not at all delays nothing and holds one piece of output in memory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::offsets::Offsets;
use super::output_text::{OutputText, cut};
use super::path::job_id;
use super::state::{JobsState, acquire, respond};
use crate::http::error::HttpError;
use crate::http::request::log::output_unreadable;
use crate::http::response::event_body::{EventSource, event_stream};
use crate::http::response::file_pieces::{PIECE_BYTES_MAX, read_piece};
use crate::http::response::sse::event;
use crate::http::server::connection::ClientSocket;
use crate::job::{JobFeed, JobProgress, JobView, Jobs};
use cofferdam_core::job::{ErrorCode, JobError, JobId, JobStatus};

/// How long small writes are gathered into one event, so that a program that writes byte by byte
/// does not cause one event per byte.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// Follows a job to its end.
pub async fn events(
    State(state): State<Arc<JobsState>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let followed = match job_id(&head.uri) {
        Ok(id) => follow(&state, client, id, Offsets::left_off(&head.headers)).await,
        Err(refusal) => Err(refusal),
    };
    respond(followed)
}

async fn follow(
    state: &Arc<JobsState>,
    client: ClientSocket,
    id: JobId,
    sent: Offsets,
) -> Result<Response, HttpError> {
    let permit = acquire(&state.streams, "event streams")?;
    let asked = id.clone();
    let feed = state.run_blocking(move |jobs| jobs.follow(&asked)).await?;
    let follower = Follower::new(Arc::clone(state), id, feed, sent, permit);
    Ok(event_stream(follower, client))
}

/// One output stream of a job.
struct OutputFollower {
    name: &'static str,
    file: Arc<File>,
    /// How many bytes were sent.
    sent: u64,
    /// How far the output was read without a complete character.
    scanned: u64,
}

impl OutputFollower {
    fn new(name: &'static str, file: File, sent: u64) -> Self {
        Self { name, file: Arc::new(file), sent, scanned: sent }
    }

    /// Returns the data of the next event from the first `end` bytes, or `None` if they were sent.
    async fn next(&mut self, end: u64, is_final: bool) -> io::Result<Option<OutputText>> {
        let left = end.saturating_sub(self.sent);
        // If no more will come, the incomplete character is sent as it is.
        if left == 0 || (end <= self.scanned && !is_final) {
            return Ok(None);
        }
        let read = read_piece(&self.file, self.sent, left).await;
        let piece = read.map_err(io::Error::other).flatten()?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_last = is_final && left <= PIECE_BYTES_MAX;
        let Some((count, text)) = cut(&piece, is_last) else {
            self.scanned = end;
            return Ok(None);
        };
        self.sent += count as u64;
        Ok(Some(text))
    }
}

/// A job that a client follows.
struct Follower {
    state: Arc<JobsState>,
    id: JobId,
    progress: watch::Receiver<JobProgress>,
    outputs: [OutputFollower; 2],
    /// The state that was sent last.
    sent: Option<JobStatus>,
    /// Until when less than a full piece of a live job's output is held back.
    hold_until: Instant,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    fn new(
        state: Arc<JobsState>,
        id: JobId,
        feed: JobFeed,
        sent: Offsets,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let JobFeed { stdout, stderr, progress } = feed;
        let now = *progress.borrow();
        let outputs = [
            OutputFollower::new("stdout", stdout, sent.stdout.min(now.stdout_bytes)),
            OutputFollower::new("stderr", stderr, sent.stderr.min(now.stderr_bytes)),
        ];
        Self {
            state,
            id,
            progress,
            outputs,
            sent: None,
            hold_until: Instant::now(),
            is_over: false,
            _permit: permit,
        }
    }

    /// Waits for the next event or the next ping. Returns `None` at the end.
    async fn next_event(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            // In this order: if the sender is gone, the value read after it is final.
            let is_final = self.progress.has_changed().is_err();
            let now = *self.progress.borrow_and_update();
            if !now.status.is_terminal() && self.sent != Some(now.status) {
                return Some(self.status(now.status));
            }
            if !is_final && self.holds_back(&now) {
                sleep_until(self.hold_until).await;
                continue;
            }
            match self.output(&now, is_final).await {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(error) => {
                    output_unreadable(&self.id, &error);
                    return Some(self.abort("the output cannot be read"));
                }
            }
            if is_final {
                return Some(self.end().await);
            }
            let changed = timeout(self.state.ping_every, self.progress.changed()).await;
            if changed.is_err() {
                return Some(event("ping", None, &json!({})));
            }
        }
    }

    /// Returns whether so little output is new that it waits for more.
    fn holds_back(&self, now: &JobProgress) -> bool {
        let ends = [now.stdout_bytes, now.stderr_bytes];
        let left = |(output, end): (&OutputFollower, u64)| {
            end.saturating_sub(output.sent.max(output.scanned))
        };
        let mut left = self.outputs.iter().zip(ends).map(left).filter(|left| *left > 0).peekable();
        left.peek().is_some()
            && left.all(|left| left < PIECE_BYTES_MAX)
            && Instant::now() < self.hold_until
    }

    fn sent_so_far(&self) -> Offsets {
        let [stdout, stderr] = &self.outputs;
        Offsets { stdout: stdout.sent, stderr: stderr.sent }
    }

    fn status(&mut self, status: JobStatus) -> String {
        self.sent = Some(status);
        let data = json!({ "job_id": self.id, "status": status });
        event("status", Some(&self.sent_so_far()), &data)
    }

    async fn output(&mut self, now: &JobProgress, is_final: bool) -> io::Result<Option<String>> {
        for index in 0..self.outputs.len() {
            let Some(output) = self.outputs.get_mut(index) else { continue };
            let end = [now.stdout_bytes, now.stderr_bytes].get(index).copied().unwrap_or_default();
            let name = output.name;
            if let Some(data) = output.next(end, is_final).await? {
                self.hold_until = Instant::now() + GATHERED_FOR;
                return Ok(Some(event(name, Some(&self.sent_so_far()), &data)));
            }
        }
        Ok(None)
    }

    /// Returns the last state and the result.
    async fn end(&mut self) -> String {
        self.is_over = true;
        let (id, sent) = (self.id.clone(), self.sent_so_far());
        let view = move |jobs: &dyn Jobs| {
            Ok(match jobs.view(&id)? {
                JobView::Ended(result) => {
                    Some((result.status, event("result", Some(&sent), &result)))
                }
                JobView::Live(_) => None,
            })
        };
        match self.state.run_blocking(view).await {
            Ok(Some((status, result))) => {
                let before = (self.sent != Some(status)).then(|| self.status(status));
                before.unwrap_or_default() + &result
            }
            Ok(None) => self.abort("the job cannot be followed any further here"),
            Err(refusal) => error_event(&refusal.into_job_error()),
        }
    }

    fn abort(&mut self, words: &str) -> String {
        self.is_over = true;
        error_event(&JobError::new(ErrorCode::IoFailed, words))
    }
}

/// Returns the event that replaces a result.
fn error_event(error: &JobError) -> String {
    event("error", None, error)
}

impl EventSource for Follower {
    async fn next(&mut self) -> Option<Bytes> {
        self.next_event().await.map(Bytes::from)
    }
}
