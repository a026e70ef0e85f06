//! A tunnel to a host with rules: the proxy speaks TLS for the host, and answers the requests in it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::dial::{DialTarget, TLS_SEND_BYTES_MAX};
use super::host::RuledHost;
use crate::egress::client_hello::{self, FirstBytes};
use crate::egress::proxy::connection::activity::Activity;
use crate::egress::proxy::connection::gate::GateReport;
use crate::egress::proxy::connection::http1::{ServedHttp1, serve_http1, with_end};
use crate::egress::proxy::connection::rewound::Rewound;
use crate::egress::proxy::connection::tunnel::{ACCESS_DENIED, is_for, read_hello};
use crate::egress::proxy::context::ProxyContext;
use crate::egress::proxy::refusal::EgressRefusal;
use cofferdam_core::egress::{EgressDecision, EgressReason};
use cofferdam_core::framing::head::{Framing, HEAD_BYTES_MAX};
use cofferdam_core::weakened::{self, Wall};

/// Requests at once of one connection.
const STREAMS_MAX: u32 = 64;
/// What a program may send of one request, and of all on a connection, before the host has taken it.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 512 * 1024;
const SEND_BUFFER_BYTES: usize = 16 * 1024;
/// How much is read of a socket at a time; TLS alone would read a few KiB.
const SOCKET_READ_BYTES: usize = 8 * 1024;
const ALPN_HTTP2: &[u8] = b"h2";

/// A program's connection below TLS.
type ProgramSocket = BufReader<Rewound<TcpStream>>;

/// A tunnel to a host with rules.
#[derive(Debug)]
pub struct RuledTunnel {
    pub context: Arc<ProxyContext>,
    pub target: DialTarget,
    pub activity: Activity,
}

impl RuledTunnel {
    /// Serves the tunnel over `client`, of which `first` are read already. Returns the connection, which the
    /// caller closes.
    pub async fn run(self, mut client: TcpStream, first: Vec<u8>) -> Option<TcpStream> {
        let Self { context, target, activity } = self;
        let idle_max = context.limits.idle_max;
        let host = RuledHost::new(Arc::clone(&context), target.clone(), activity.clone()).ok()?;
        let read = activity.watch(idle_max, read_hello(&mut client, first)).await?;
        let Ok(Some(hello)) = read else { return Some(client) };
        if let Some(reason) = refusal_of(&target, &hello) {
            host.begin(None).refused(EgressDecision::Denied, reason);
            if reason == EgressReason::HostMismatch {
                // The program may have gone: then the alert is lost, and that is fine.
                let _ = client.write_all(&ACCESS_DENIED).await;
            }
            return Some(client);
        }
        let config = match context.trust.config(&target.host) {
            Ok(config) => config,
            Err(error) => {
                log::warn!("egress: {error}");
                host.begin(None).refused(EgressDecision::Failed, EgressReason::Connect);
                return Some(client);
            }
        };
        let socket = BufReader::with_capacity(SOCKET_READ_BYTES, Rewound::new(client, hello));
        let accepting = TlsAcceptor::from(config).accept(socket);
        let accepted = timeout(context.limits.connect_within, accepting).await;
        let Ok(Ok(mut stream)) = accepted else {
            // The program does not speak TLS as we do, or does not trust the authority.
            host.begin(None).refused(EgressDecision::Denied, EgressReason::NoTls);
            return None;
        };
        stream.get_mut().1.set_buffer_limit(Some(TLS_SEND_BYTES_MAX));
        if stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2) {
            serve_http2(stream, host, &activity, &context).await;
            return None;
        }
        let served = serve_requests(stream, &host, &activity, &context).await;
        Some(served.into_inner().into_inner())
    }
}

/// Why a tunnel that begins with `hello` is refused, if it is.
fn refusal_of(target: &DialTarget, hello: &[u8]) -> Option<EgressReason> {
    match client_hello::read(hello) {
        FirstBytes::Hello(name) => {
            let is_for = is_for(&target.host, name) || weakened::lacks(Wall::Agreement);
            (!is_for).then_some(EgressReason::HostMismatch)
        }
        FirstBytes::Incomplete | FirstBytes::NotTls => Some(EgressReason::NoTls),
    }
}

/// Serves requests of HTTP/1, and the WebSocket that the last of them may become.
async fn serve_requests(
    stream: TlsStream<ProgramSocket>,
    host: &RuledHost,
    activity: &Activity,
    context: &ProxyContext,
) -> ProgramSocket {
    let (report, idle_max) = (GateReport::default(), context.limits.idle_max);
    let answer = |request: Request<Incoming>| {
        let framing = report.take_framing();
        let is_last = report.is_last();
        async move { with_end(host.answer(request, framing).await, is_last) }
    };
    let served = serve_http1(stream, (activity, &report), idle_max, answer).await;
    let ServedHttp1 { socket: mut stream, first, is_unreadable, is_late } = served;
    if is_unreadable {
        let refusal = EgressRefusal::denied(EgressReason::BadRequest);
        host.begin(None).refused(refusal.decision, refusal.reason);
        if is_late {
            // Otherwise hyper has answered.
            let _ = activity.watch(idle_max, stream.write_all(&refusal.bytes())).await;
        }
    }
    if let Some(websocket) = host.take_websocket() {
        let _ = activity.watch(idle_max, websocket.run(&mut stream, &first)).await;
    }
    let _ = timeout(context.limits.connect_within, stream.shutdown()).await;
    stream.into_inner().0
}

async fn serve_http2<S>(stream: S, host: RuledHost, activity: &Activity, context: &ProxyContext)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = Arc::new(host);
    let service = service_fn(|request: Request<Incoming>| {
        let host = Arc::clone(&host);
        // The frames of HTTP/2 say where a body ends.
        let framing = Framing::Length(0);
        async move { Ok::<_, Infallible>(host.answer(request, Some(framing)).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let idle_max = context.limits.idle_max;
    if activity.watch(idle_max, connection.as_mut()).await.is_none() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(context.limits.connect_within, connection).await;
    }
}
