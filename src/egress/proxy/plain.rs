//! A request for `http://`: parsed by hyper, written anew to the host, and its answer to the program.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::body::{ConnectionTask, ProxyBody};
use super::connection::activity::Activity;
use super::headers::{host_value, remove_hop_by_hop};
use super::metered::MeteredStream;
use super::refusal::EgressRefusal;
use crate::egress::log::OpenRecord;
use crate::egress::policy::EgressRequest;
use cofferdam_core::egress::EgressReason;
use cofferdam_core::framing::head::Framing;

/// The most bytes of an answer's head, and of an answer that is held for a program.
const ANSWER_BUFFER_BYTES_MAX: usize = 64 * 1024;
const PORT_HTTP: u16 = 80;

/// One request on its way to its host.
pub struct PlainExchange {
    pub target: EgressRequest,
    pub framing: Framing,
    pub record: Arc<OpenRecord>,
    pub activity: Activity,
    pub idle_max: Duration,
}

impl PlainExchange {
    /// Sends `request` over `stream` and returns the host's answer.
    pub async fn run(
        self,
        request: Request<Incoming>,
        stream: MeteredStream,
    ) -> Result<Response<ProxyBody>, EgressRefusal> {
        let failed = || EgressRefusal::failed(EgressReason::Connect);
        let request =
            self.outgoing(request).ok_or(EgressRefusal::denied(EgressReason::BadRequest))?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(ANSWER_BUFFER_BYTES_MAX);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|_| failed())?;
        let (activity, idle_max) = (self.activity.clone(), self.idle_max);
        let task = tokio::spawn(async move {
            // The sender and the body see how it ended.
            let _ = activity.watch(idle_max, connection).await;
        });
        let task = ConnectionTask(task.abort_handle());
        let response = sender.send_request(request).await.map_err(|_| failed())?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(failed());
        }
        let (mut head, body) = response.into_parts();
        if head.headers.contains_key(TRANSFER_ENCODING) {
            head.headers.remove(CONTENT_LENGTH);
        }
        remove_hop_by_hop(&mut head.headers);
        head.version = Version::HTTP_11;
        self.record.answered(head.status.as_u16());
        let record = Arc::clone(&self.record);
        Ok(Response::from_parts(head, ProxyBody::Streamed { body, record, _task: task }))
    }

    /// Returns the request as the host gets it.
    fn outgoing(&self, request: Request<Incoming>) -> Option<Request<Incoming>> {
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = path.parse::<Uri>().ok()?;
        head.version = Version::HTTP_11;
        remove_hop_by_hop(&mut head.headers);
        // The body's end is waited for by this proxy, which answers that itself.
        head.headers.remove(EXPECT);
        let host = host_value(&self.target.host, self.target.port, PORT_HTTP);
        head.headers.insert(HOST, HeaderValue::from_str(&host).ok()?);
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if self.framing == Framing::Chunked {
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Some(Request::from_parts(head, body))
    }
}
