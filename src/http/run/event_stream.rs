//! Streams a run as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use serde_json::json;
use tokio::time::{Instant, Interval, Sleep, interval_at, sleep_until, timeout};

use super::output_queue::OutputQueue;
use super::reply::RunBody;
use super::running::RunningTask;
use crate::check::run::CheckReport;
use crate::http::error::{HttpApi, HttpError};
use crate::http::response::sse::{TextCutter, event};
use crate::http::server::rate_limit::RateLimit;
use cofferdam_core::Stream;

/// How long the response head waits for a sign that the run has started, so that an earlier failure
/// is an ordinary HTTP error.
const START_WITHIN: Duration = Duration::from_secs(1);

/// The events of one run, made as the client reads them.
struct EventStream {
    queue: OutputQueue,
    running: RunningTask<String>,
    /// Set if no limit bounds the output.
    pace: Option<RateLimit>,
    /// Until when no more output is taken.
    pause: Option<Pin<Box<Sleep>>>,
    ping: Interval,
    stdout: TextCutter,
    stderr: TextCutter,
    /// Events that are ready to be sent.
    ready: VecDeque<String>,
    over: bool,
    /// Whether other connections get a turn before the next piece of output.
    yields: bool,
    /// Decides the shape of an error.
    api: HttpApi,
}

/// Responds with the events of `running`, whose output arrives through `queue`. `pace` limits the
/// rate of output that has no size limit. Returns an error if the run failed before its start.
pub async fn respond(
    running: RunningTask<String>,
    queue: OutputQueue,
    pace: Option<RateLimit>,
    ping_every: Duration,
    api: HttpApi,
) -> Result<Response, HttpError> {
    let mut stream = EventStream {
        queue,
        running,
        pace,
        pause: None,
        ping: interval_at(Instant::now() + ping_every, ping_every),
        stdout: TextCutter::default(),
        stderr: TextCutter::default(),
        ready: VecDeque::new(),
        over: false,
        yields: false,
        api,
    };
    if let Ok(started) = timeout(START_WITHIN, poll_fn(|cx| stream.poll_step(cx))).await {
        started?;
    }
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Returns the last events of a stream: the text that the service adds to stderr, and the result.
pub fn result(report: &CheckReport) -> String {
    let result = event("result", None, &RunBody::with_outcome(&report.run));
    match &report.last_words {
        Some(words) => {
            let offset = report.run.stderr.bytes_total.saturating_sub(words.len() as u64);
            event("stderr", Some(&offset), words) + &result
        }
        None => result,
    }
}

impl EventStream {
    /// Waits for the run's next piece of output, or its end, and makes the events for it.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if let Some((stream, bytes)) = ready!(self.queue.poll_next(cx)) {
            let until = self.pace.as_mut().and_then(|pace| pace.spend(bytes.len(), Instant::now()));
            self.pause = until.map(|until| Box::pin(sleep_until(until)));
            let (name, cutter) = match stream {
                Stream::Stdout => ("stdout", &mut self.stdout),
                Stream::Stderr => ("stderr", &mut self.stderr),
            };
            let text = cutter.cut(&bytes);
            self.ready.extend(text.map(|(offset, text)| event(name, Some(&offset), &text)));
            return Poll::Ready(Ok(()));
        }
        let result = ready!(self.running.poll_result(cx))?;
        self.end(result);
        Poll::Ready(Ok(()))
    }

    fn end(&mut self, result: String) {
        for (name, cutter) in [("stdout", &mut self.stdout), ("stderr", &mut self.stderr)] {
            let rest = cutter.finish();
            self.ready.extend(rest.map(|(offset, text)| event(name, Some(&offset), &text)));
        }
        self.ready.push_back(result);
        self.over = true;
    }
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = self.get_mut();
        loop {
            if let Some(text) = stream.ready.pop_front() {
                stream.ping.reset();
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
            if stream.over {
                return Poll::Ready(None);
            }
            if std::mem::take(&mut stream.yields) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match stream.poll_step(cx) {
                Poll::Ready(Ok(())) => stream.yields = true,
                Poll::Ready(Err(refusal)) => {
                    stream.ready.push_back(event("error", None, &refusal.into_json(stream.api)));
                    stream.over = true;
                }
                Poll::Pending => {
                    ready!(stream.ping.poll_tick(cx));
                    stream.ready.push_back(event("ping", None, &json!({})));
                }
            }
        }
    }
}
