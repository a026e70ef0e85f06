//! Server-sent events as a response body, one at a time.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::sleep;

use crate::http::server::connection::ClientSocket;

/// How long events are still sent after the client has closed its side. A client that only
/// half-closes can read what is there, as with a run.
const LEFT_FOR: Duration = Duration::from_millis(100);

/// Makes events, each after the client has taken the one before.
pub trait EventSource: Send + Sized + 'static {
    /// Waits for the next event, a part of it, or the next ping. Returns `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Returns the response that sends the events of `source` until the client has left.
pub fn event_stream(source: impl EventSource, client: ClientSocket) -> Response {
    let mut response = Response::new(Body::new(EventBody::new(source, client)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The pending next event, and the source that makes the one after it.
type NextEvent<S> = Pin<Box<dyn Future<Output = (Option<Bytes>, S)> + Send>>;

/// The events as a response body. Ends after the client has left.
struct EventBody<S> {
    next: Option<NextEvent<S>>,
    left: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<S: EventSource> EventBody<S> {
    fn new(source: S, client: ClientSocket) -> Self {
        let left = Box::pin(async move {
            client.left().await;
            sleep(LEFT_FOR).await;
        });
        Self { next: Some(next_of(source)), left }
    }
}

fn next_of<S: EventSource>(mut source: S) -> NextEvent<S> {
    Box::pin(async move { (source.next().await, source) })
}

impl<S: EventSource> HttpBody for EventBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        let Some(next) = &mut body.next else { return Poll::Ready(None) };
        let Poll::Ready((event, source)) = next.as_mut().poll(cx) else {
            ready!(body.left.as_mut().poll(cx));
            // Frees what the source holds now.
            body.next = None;
            return Poll::Ready(None);
        };
        body.next = event.as_ref().map(|_| next_of(source));
        Poll::Ready(event.map(|event| Ok(Frame::data(event))))
    }
}
