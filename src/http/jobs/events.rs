//! `GET /v1/jobs/{id}/events`: what a job writes and becomes, as server-sent events.
//!
//! Each event is made when the client has taken the one before, from the files that the job's
//! output is kept in: a client that reads slowly, or not at all, holds nobody up and costs one
//! piece of output in memory.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::offsets::Offsets;
use super::output_text::{OutputText, cut};
use super::{JobsFront, answered, job_id, place_of};
use crate::http::connection::ClientSocket;
use crate::http::event_text::event;
use crate::http::file_pieces::{PIECE_BYTES_MAX, read_piece};
use crate::http::log_lines::output_unreadable;
use crate::http::refusal::Refusal;
use crate::job::{JobFeed, JobProgress, JobView, Jobs};
use cofferdam_core::job::{ErrorCode, JobError, JobId, JobStatus};

/// How long a client is told more that has closed its side: one that only has nothing more to
/// send reads what there is, as it does of a run.
const LEFT_FOR: Duration = Duration::from_millis(100);
/// How long what is written in small pieces is gathered for the next event, so that a program that
/// writes byte by byte costs its followers, and us, no event for each.
const GATHERED_FOR: Duration = Duration::from_millis(10);

/// Follows one job to its end.
pub async fn events(
    State(front): State<Arc<JobsFront>>,
    Extension(client): Extension<ClientSocket>,
    request: Request,
) -> Response {
    let (head, _) = request.into_parts();
    let followed = match job_id(&head.uri) {
        Ok(id) => follow(&front, client, id, Offsets::left_off(&head.headers)).await,
        Err(refusal) => Err(refusal),
    };
    answered(followed)
}

async fn follow(
    front: &Arc<JobsFront>,
    client: ClientSocket,
    id: JobId,
    told: Offsets,
) -> Result<Response, Refusal> {
    let place = place_of(&front.streams, "event streams")?;
    let asked = id.clone();
    let feed = front.ask(move |jobs| jobs.follow(&asked)).await?;
    let following = Following::new(Arc::clone(front), id, feed, told, place);
    let mut response = Response::new(Body::new(EventBody::new(following, client)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// One output stream of a job.
struct Output {
    name: &'static str,
    file: Arc<File>,
    /// How much of it was told, bytes.
    told: u64,
    /// How far it was looked at in vain: a character's rest is missing there.
    seen: u64,
}

impl Output {
    fn new(name: &'static str, file: File, told: u64) -> Self {
        Self { name, file: Arc::new(file), told, seen: told }
    }

    /// The data of the next event, of the first `end` bytes; none where they were told.
    async fn next(&mut self, end: u64, is_all: bool) -> io::Result<Option<OutputText>> {
        let left = end.saturating_sub(self.told);
        // Once there is no more to come, what was looked at in vain is told as it is.
        if left == 0 || (end <= self.seen && !is_all) {
            return Ok(None);
        }
        let read = read_piece(&self.file, self.told, left).await;
        let piece = read.map_err(io::Error::other).flatten()?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let is_last = is_all && left <= PIECE_BYTES_MAX;
        let Some((count, text)) = cut(&piece, is_last) else {
            self.seen = end;
            return Ok(None);
        };
        self.told += count as u64;
        Ok(Some(text))
    }
}

/// A job that is followed.
struct Following {
    front: Arc<JobsFront>,
    id: JobId,
    progress: watch::Receiver<JobProgress>,
    outputs: [Output; 2],
    /// The state that was told last.
    told: Option<JobStatus>,
    /// Until when less than a piece of a live job's output waits for more.
    gathers_until: Instant,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl Following {
    fn new(
        front: Arc<JobsFront>,
        id: JobId,
        feed: JobFeed,
        told: Offsets,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let JobFeed { stdout, stderr, progress } = feed;
        let now = *progress.borrow();
        let outputs = [
            Output::new("stdout", stdout, told.stdout.min(now.stdout_bytes)),
            Output::new("stderr", stderr, told.stderr.min(now.stderr_bytes)),
        ];
        Self {
            front,
            id,
            progress,
            outputs,
            told: None,
            gathers_until: Instant::now(),
            is_over: false,
            _place: place,
        }
    }

    /// Waits for the next event, or for the time to give a sign of life; none at the end.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            // In this order: when the sender has gone, what is there is the last word.
            let is_all = self.progress.has_changed().is_err();
            let now = *self.progress.borrow_and_update();
            if !now.status.is_terminal() && self.told != Some(now.status) {
                return Some(self.status(now.status));
            }
            if !is_all && self.gathers(&now) {
                sleep_until(self.gathers_until).await;
                continue;
            }
            match self.output(&now, is_all).await {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(error) => {
                    output_unreadable(&self.id, &error);
                    return Some(self.broken_off("the output cannot be read"));
                }
            }
            if is_all {
                return Some(self.end().await);
            }
            let changed = timeout(self.front.ping_every, self.progress.changed()).await;
            if changed.is_err() {
                return Some(event("ping", None, &json!({})));
            }
        }
    }

    /// Whether there is so little to tell that more may come before it is told.
    fn gathers(&self, now: &JobProgress) -> bool {
        let ends = [now.stdout_bytes, now.stderr_bytes];
        let left = |(output, end): (&Output, u64)| end.saturating_sub(output.told.max(output.seen));
        let mut left = self.outputs.iter().zip(ends).map(left).filter(|left| *left > 0).peekable();
        left.peek().is_some()
            && left.all(|left| left < PIECE_BYTES_MAX)
            && Instant::now() < self.gathers_until
    }

    fn told_so_far(&self) -> Offsets {
        let [stdout, stderr] = &self.outputs;
        Offsets { stdout: stdout.told, stderr: stderr.told }
    }

    fn status(&mut self, status: JobStatus) -> String {
        self.told = Some(status);
        let data = json!({ "job_id": self.id, "status": status });
        event("status", Some(&self.told_so_far()), &data)
    }

    async fn output(&mut self, now: &JobProgress, is_all: bool) -> io::Result<Option<String>> {
        for index in 0..self.outputs.len() {
            let Some(output) = self.outputs.get_mut(index) else { continue };
            let end = [now.stdout_bytes, now.stderr_bytes].get(index).copied().unwrap_or_default();
            let name = output.name;
            if let Some(data) = output.next(end, is_all).await? {
                self.gathers_until = Instant::now() + GATHERED_FOR;
                return Ok(Some(event(name, Some(&self.told_so_far()), &data)));
            }
        }
        Ok(None)
    }

    /// The last state and the result, together.
    async fn end(&mut self) -> String {
        self.is_over = true;
        let (id, told) = (self.id.clone(), self.told_so_far());
        let view = move |jobs: &dyn Jobs| {
            Ok(match jobs.view(&id)? {
                JobView::Ended(result) => {
                    Some((result.status, event("result", Some(&told), &result)))
                }
                JobView::Live(_) => None,
            })
        };
        match self.front.ask(view).await {
            Ok(Some((status, result))) => {
                let before = (self.told != Some(status)).then(|| self.status(status));
                before.unwrap_or_default() + &result
            }
            Ok(None) => self.broken_off("the job can be followed no further here"),
            Err(refusal) => error_event(&refusal.into_job_error()),
        }
    }

    fn broken_off(&mut self, words: &str) -> String {
        self.is_over = true;
        error_event(&JobError::new(ErrorCode::IoFailed, words))
    }
}

/// In the place of a result.
fn error_event(error: &JobError) -> String {
    event("error", None, error)
}

/// The next event in the making, and what makes the one after it.
type Next = Pin<Box<dyn Future<Output = (Option<String>, Following)> + Send>>;

/// The events as an answer's body, which ends when the client has gone.
struct EventBody {
    next: Option<Next>,
    left: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl EventBody {
    fn new(following: Following, client: ClientSocket) -> Self {
        let left = Box::pin(async move {
            client.left().await;
            sleep(LEFT_FOR).await;
        });
        Self { next: Some(next_of(following)), left }
    }
}

fn next_of(mut following: Following) -> Next {
    Box::pin(async move { (following.next().await, following) })
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let Some(next) = &mut body.next else { return Poll::Ready(None) };
        let Poll::Ready((event, following)) = next.as_mut().poll(cx) else {
            ready!(body.left.as_mut().poll(cx));
            // Its place is free from here on.
            body.next = None;
            return Poll::Ready(None);
        };
        body.next = event.as_ref().map(|_| next_of(following));
        Poll::Ready(event.map(|event| Ok(Frame::data(event.into()))))
    }
}
