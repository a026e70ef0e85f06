//! A new connection to a host with rules: TLS with a host that proves who it is, and HTTP over it.

use std::io;
use std::sync::Arc;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::sent_body::SentBody;
use super::whole_reads::WholeReads;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::log::OpenRecord;
use crate::egress::policy::{EgressKind, EgressRequest};
use crate::egress::proxy::body::ConnectionTask;
use crate::egress::proxy::context::ProxyContext;
use crate::egress::proxy::refusal::EgressRefusal;
use crate::egress::proxy::upstream;
use crate::egress::rules::{HostRoute, NetworkRules};
use cofferdam_core::egress::EgressReason;
use cofferdam_core::weakened::{self, Wall};

/// The most bytes of an answer's head, and of an answer that is held for a program.
const ANSWER_BUFFER_BYTES_MAX: usize = 32 * 1024;
/// The most encrypted bytes that wait for a socket: two whole records.
pub const TLS_SEND_BYTES_MAX: usize = 32 * 1024;
/// How much is read of a socket at a time; TLS alone would read a few KiB.
const SOCKET_READ_BYTES: usize = 16 * 1024;
/// What a host may send of one answer, and of all on a connection, before the program has read it.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
const SEND_BUFFER_BYTES: usize = 64 * 1024;
const ANSWER_HEAD_BYTES_MAX: u32 = 64 * 1024;
const ALPN_HTTP2: &[u8] = b"h2";

/// Where a connection leads.
#[derive(Debug, Clone)]
pub struct DialTarget {
    pub host: AskedHost,
    pub port: u16,
    pub is_plain: bool,
}

impl DialTarget {
    /// Whether `rules` decide over requests that are sent there.
    pub fn is_ruled_by(&self, rules: &NetworkRules) -> bool {
        rules.route(&self.host, self.port) == (HostRoute::Ruled { is_plain: self.is_plain })
    }
}

/// A connection to a host, over which requests are sent.
#[derive(Debug)]
pub enum HostSender {
    Http1(http1::SendRequest<SentBody>, ConnectionTask),
    Http2(http2::SendRequest<SentBody>, Arc<ConnectionTask>),
}

/// Connects to `target`. With `http1_only` HTTP/2 is not offered.
pub async fn dial(
    context: &ProxyContext,
    target: &DialTarget,
    http1_only: bool,
    record: &OpenRecord,
) -> Result<HostSender, EgressRefusal> {
    let kind = if target.is_plain { EgressKind::Plain } else { EgressKind::Tunnel };
    let request = EgressRequest { host: target.host.clone(), port: target.port, kind };
    let socket = upstream::connect(context, &request, record).await?;
    if target.is_plain {
        return over_http1(socket).await;
    }
    let unready = |error: rustls::Error| {
        EgressRefusal::failed(EgressReason::UpstreamTls).because(error.to_string())
    };
    let config = context.tls.config(http1_only).map_err(unready)?;
    let within = context.limits.connect_within;
    let socket = BufReader::with_capacity(SOCKET_READ_BYTES, socket);
    let greeted = timeout(within, greet(socket, &target.host, config)).await;
    let slow = || EgressRefusal::failed(EgressReason::Connect);
    let mut stream = greeted.map_err(|_| slow())??;
    stream.get_mut().1.set_buffer_limit(Some(TLS_SEND_BYTES_MAX));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2);
    if is_http2 { over_http2(stream).await } else { over_http1(WholeReads(stream)).await }
}

async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    host: &AskedHost,
    config: Arc<ClientConfig>,
) -> Result<TlsStream<S>, EgressRefusal> {
    let name = match host {
        AskedHost::Address(address) => Ok(ServerName::from(*address)),
        AskedHost::Name(name) | AskedHost::Numeric(name) => ServerName::try_from(name.clone()),
    };
    let unproven = |why: String| EgressRefusal::failed(EgressReason::UpstreamTls).because(why);
    let name = name.map_err(|error| unproven(error.to_string()))?;
    let connected = TlsConnector::from(config).connect(name, socket).await;
    connected.map_err(|error: io::Error| unproven(error.to_string()))
}

async fn over_http1<S>(stream: S) -> Result<HostSender, EgressRefusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |_| EgressRefusal::failed(EgressReason::Connect);
    let mut builder = http1::Builder::new();
    builder.max_buf_size(answer_buffer_bytes_max());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // The sender and the bodies see how it ended.
    let task = tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(HostSender::Http1(sender, ConnectionTask(task.abort_handle())))
}

fn answer_buffer_bytes_max() -> usize {
    let factor = if weakened::lacks(Wall::Tally) { 16 } else { 1 };
    ANSWER_BUFFER_BYTES_MAX * factor
}

async fn over_http2<S>(stream: S) -> Result<HostSender, EgressRefusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |_| EgressRefusal::failed(EgressReason::Connect);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(ANSWER_HEAD_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok(HostSender::Http2(sender, Arc::new(ConnectionTask(task.abort_handle()))))
}
