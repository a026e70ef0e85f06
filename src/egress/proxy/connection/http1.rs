//! Serves requests of HTTP/1 behind the gate.

use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;

use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::Activity;
use super::gate::{GateReport, RequestGate};
use crate::egress::proxy::body::ProxyBody;
use cofferdam_core::framing::head::HEAD_BYTES_MAX;

/// More header lines than a head can hold, so that the length of the head alone bounds them.
const REQUEST_HEADERS_MAX: usize = HEAD_BYTES_MAX / 4 + 1;
/// How much longer the connection of a program lives than the one to its host, so that the program hears
/// that the host is silent.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// A connection over which no more requests come.
#[derive(Debug)]
pub struct ServedHttp1<S> {
    pub socket: S,
    /// The bytes behind the last head.
    pub first: Vec<u8>,
    /// Whether nothing passed for too long.
    pub is_late: bool,
    /// Whether the last request is refused because it could not be read.
    pub is_unreadable: bool,
}

/// Answers the requests that come over `socket`, until one side is done, nothing has passed for `idle_max`
/// and a little longer, or the connection becomes a tunnel.
pub async fn serve_http1<S, F>(
    socket: S,
    (activity, report): (&Activity, &GateReport),
    idle_max: Duration,
    answer: impl Fn(Request<Incoming>) -> F,
) -> ServedHttp1<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<ProxyBody>>,
{
    let gate = RequestGate::new(socket, activity.clone(), report.clone());
    // Boxed: a connection that is taken over has to be movable.
    let service = service_fn(|request| {
        let answered = answer(request);
        Box::pin(async move { Ok::<_, Infallible>(answered.await) })
    });
    let mut connection = http1::Builder::new()
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(REQUEST_HEADERS_MAX)
        .serve_connection(gate, service);
    let served = poll_fn(|cx| connection.poll_without_shutdown(cx));
    let served = activity.watch(idle_max + ANSWER_WITHIN, served).await;
    let is_late = served.is_none();
    let is_malformed = served.is_some_and(|served| served.is_err_and(|error| error.is_parse()));
    let (socket, first) = connection.into_parts().io.into_parts();
    let is_unreadable = is_malformed || is_late && report.has_partial_head();
    ServedHttp1 { socket, first, is_late, is_unreadable }
}

/// Says that nothing follows an answer behind which no request is read.
pub fn with_end(mut response: Response<ProxyBody>, is_last: bool) -> Response<ProxyBody> {
    if is_last && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
