//! The connections to one host that the requests of one connection of a program share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING, UPGRADE};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderValue, Request, Response, Uri, Version};
use hyper::body::{Body, Incoming};
use hyper::client::conn::{TrySendError, http1, http2};
use tokio::time::timeout;

use super::dial::{DialTarget, HostSender, dial};
use super::incoming::port_default;
use super::sent_body::SentBody;
use crate::egress::log::OpenRecord;
use crate::egress::proxy::body::ConnectionTask;
use crate::egress::proxy::context::ProxyContext;
use crate::egress::proxy::headers::host_value;
use crate::egress::proxy::refusal::EgressRefusal;
use cofferdam_core::egress::EgressReason;

/// Unused connections that are kept.
const IDLE_MAX: usize = 8;
/// How long a connection may take to be ready for one more request.
const READY_WITHIN: Duration = Duration::from_millis(20);

type Sender1 = http1::SendRequest<SentBody>;
type Sender2 = http2::SendRequest<SentBody>;

/// The connections to one host. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct HostPool {
    target: DialTarget,
    authority: Authority,
    kept: Arc<Mutex<KeptConnections>>,
    /// Taken while it is not known whether the host speaks HTTP/2, so that one connection is tried first.
    first: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct KeptConnections {
    idle: Vec<(Sender1, ConnectionTask)>,
    shared: Option<(Sender2, Arc<ConnectionTask>)>,
    speaks_http1: bool,
}

/// What a request needs for as long as its answer is read. Returned to its pool, a connection of HTTP/1
/// serves another.
#[derive(Debug)]
pub enum UsedConnection {
    Http1 { sender: Sender1, task: ConnectionTask, pool: HostPool },
    Http2 { _task: Arc<ConnectionTask> },
}

impl UsedConnection {
    /// Keeps the connection for another request: the answer is read to its end.
    pub fn give_back(self) {
        let Self::Http1 { sender, task, pool } = self else { return };
        let mut kept = pool.kept();
        if kept.idle.len() < IDLE_MAX && !sender.is_closed() {
            kept.idle.push((sender, task));
        }
    }
}

/// What is sent, whatever version of HTTP the host speaks.
#[derive(Debug)]
pub struct OutgoingRequest {
    pub request: Request<SentBody>,
    /// Whether it asks to become a WebSocket.
    pub is_websocket: bool,
}

impl HostPool {
    /// # Errors
    /// The host cannot stand in a URI.
    pub fn new(target: DialTarget) -> Result<Self, EgressReason> {
        let text = host_value(&target.host, target.port, port_default(target.is_plain));
        let authority = text.parse().map_err(|_| EgressReason::BadRequest)?;
        Ok(Self { target, authority, kept: Arc::default(), first: Arc::default() })
    }

    /// Sends a request over a connection that is kept, or a new one. One that ended before it took the
    /// request is replaced once.
    pub async fn send(
        &self,
        context: &ProxyContext,
        outgoing: OutgoingRequest,
        record: &OpenRecord,
    ) -> Result<(Response<Incoming>, UsedConnection), EgressRefusal> {
        let OutgoingRequest { mut request, is_websocket } = outgoing;
        if !is_websocket && let Some(sender) = self.take().await {
            match self.send_over(sender, request, false).await {
                Ok(answered) => return Ok(answered),
                Err(Some(unsent)) => request = unsent,
                Err(None) => return Err(EgressRefusal::failed(EgressReason::Connect)),
            }
        }
        let sender = self.connect(context, is_websocket, record).await?;
        let sent = self.send_over(sender, request, is_websocket).await;
        sent.map_err(|_| EgressRefusal::failed(EgressReason::Connect))
    }

    async fn connect(
        &self,
        context: &ProxyContext,
        is_websocket: bool,
        record: &OpenRecord,
    ) -> Result<HostSender, EgressRefusal> {
        if is_websocket || self.target.is_plain || self.kept().speaks_http1 {
            return dial(context, &self.target, is_websocket, record).await;
        }
        let _first = self.first.lock().await;
        if let Some(sender) = self.take().await {
            return Ok(sender);
        }
        let sender = dial(context, &self.target, false, record).await?;
        let mut kept = self.kept();
        match &sender {
            HostSender::Http1(..) => kept.speaks_http1 = true,
            HostSender::Http2(sender, task) => {
                kept.shared = Some((sender.clone(), Arc::clone(task)));
            }
        }
        drop(kept);
        Ok(sender)
    }

    /// Takes a connection that is ready.
    async fn take(&self) -> Option<HostSender> {
        if let Some((sender, task)) = self.ready_http2() {
            return Some(HostSender::Http2(sender, task));
        }
        loop {
            let (mut sender, task) = self.kept().idle.pop()?;
            if let Ok(Ok(())) = timeout(READY_WITHIN, sender.ready()).await {
                return Some(HostSender::Http1(sender, task));
            }
        }
    }

    fn ready_http2(&self) -> Option<(Sender2, Arc<ConnectionTask>)> {
        let mut kept = self.kept();
        let is_closed = kept.shared.as_ref().is_some_and(|(sender, _)| sender.is_closed());
        if is_closed {
            kept.shared = None;
        }
        kept.shared.as_ref().map(|(sender, task)| (sender.clone(), Arc::clone(task)))
    }

    /// Sends over `sender`. Returns the request if nothing of it was sent.
    async fn send_over(
        &self,
        sender: HostSender,
        mut request: Request<SentBody>,
        is_websocket: bool,
    ) -> Result<(Response<Incoming>, UsedConnection), Option<Request<SentBody>>> {
        let unsent = |mut error: TrySendError<Request<SentBody>>| error.take_message();
        match sender {
            HostSender::Http1(mut sender, task) => {
                self.shape_for_http1(&mut request, is_websocket).map_err(|()| None)?;
                let response = sender.try_send_request(request).await.map_err(unsent)?;
                Ok((response, UsedConnection::Http1 { sender, task, pool: self.clone() }))
            }
            HostSender::Http2(mut sender, task) => {
                self.shape_for_http2(&mut request).map_err(|()| None)?;
                let response = sender.try_send_request(request).await.map_err(unsent)?;
                Ok((response, UsedConnection::Http2 { _task: task }))
            }
        }
    }

    fn shape_for_http1(
        &self,
        request: &mut Request<SentBody>,
        is_websocket: bool,
    ) -> Result<(), ()> {
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = Uri::from(path_of(request));
        let has_body = !request.body().is_end_stream();
        let host = HeaderValue::from_str(self.authority.as_str()).map_err(|_| ())?;
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        join_cookies(headers);
        if has_body && !headers.contains_key(CONTENT_LENGTH) {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if is_websocket {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        }
        Ok(())
    }

    fn shape_for_http2(&self, request: &mut Request<SentBody>) -> Result<(), ()> {
        *request.version_mut() = Version::HTTP_2;
        let uri = Uri::builder()
            .scheme(Scheme::HTTPS)
            .authority(self.authority.clone())
            .path_and_query(path_of(request));
        *request.uri_mut() = uri.build().map_err(|_| ())?;
        let headers = request.headers_mut();
        for name in [HOST, TRANSFER_ENCODING, CONNECTION, UPGRADE] {
            headers.remove(name);
        }
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, KeptConnections> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path_of<B>(request: &Request<B>) -> PathAndQuery {
    request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"))
}

/// HTTP/1 has one line of cookies, where HTTP/2 may have several.
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        joined.set_sensitive(true);
        headers.insert(COOKIE, joined);
    }
}
