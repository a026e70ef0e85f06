//! Serves one connection of a program.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, Request, Response, StatusCode};
use hyper::body::{Bytes, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::activity::{Activity, run_until};
use super::gate::GateReport;
use super::http1::{ServedHttp1, serve_http1, with_end};
use super::target;
use super::tunnel::Tunnel;
use crate::egress::log::{OpenRecord, RequestOrigin};
use crate::egress::policy::{EgressKind, EgressRequest};
use crate::egress::proxy::body::ProxyBody;
use crate::egress::proxy::context::ProxyContext;
use crate::egress::proxy::metered::MeteredStream;
use crate::egress::proxy::plain::PlainExchange;
use crate::egress::proxy::refusal::{EgressRefusal, RefusedRequest};
use crate::egress::proxy::ruled::dial::DialTarget;
use crate::egress::proxy::ruled::host::RuledHost;
use crate::egress::proxy::ruled::tunnel::RuledTunnel;
use crate::egress::proxy::upstream;
use crate::egress::rules::HostRoute;
use cofferdam_core::egress::EgressReason;
use cofferdam_core::framing::head::Framing;

/// How long what a program sends behind a refusal is read, so that it reads the refusal.
const DISCARD_WITHIN: Duration = Duration::from_secs(1);
const DISCARD_BYTES: usize = 4096;

/// Serves the requests of one connection.
#[derive(Clone)]
pub struct ClientService {
    context: Arc<ProxyContext>,
    activity: Activity,
    report: GateReport,
    /// Whether there are too many connections, so that every request is refused.
    is_surplus: bool,
    /// What the connection becomes.
    tunnel: Arc<Mutex<Option<ClientTunnel>>>,
    /// The host with rules that the last request for `http://` went to.
    ruled: Arc<Mutex<Option<Arc<RuledHost>>>>,
}

/// What a connection becomes.
enum ClientTunnel {
    /// A tunnel whose bytes pass untouched.
    Opaque(Tunnel),
    /// A tunnel whose requests are judged.
    Ruled(RuledTunnel),
}

impl ClientService {
    pub fn new(context: Arc<ProxyContext>, is_surplus: bool) -> Self {
        let (activity, report) = (Activity::new(), GateReport::default());
        let (tunnel, ruled) = (Arc::default(), Arc::default());
        Self { context, activity, report, is_surplus, tunnel, ruled }
    }

    /// Serves `socket` until one side is done or nothing has passed for too long.
    pub async fn serve(self, socket: TcpStream) {
        // Sends small messages at once. If the kernel cannot, that only costs time.
        let _ = socket.set_nodelay(true);
        let idle_max = self.context.limits.idle_max;
        let (activity, network) = (self.activity.clone(), Arc::clone(&self.context.policy.network));
        let Some((mut socket, first)) = self.serve_requests(socket).await else { return };
        let tunnel = self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        match tunnel {
            Some(ClientTunnel::Opaque(tunnel)) => {
                let target = tunnel.target();
                let policy = &self.context.policy;
                let withdrawn =
                    network.withdrawn(|_| policy.judge(&target) == Ok(HostRoute::Listed));
                let passing = run_until(withdrawn, tunnel.run(&mut socket, first));
                let _ = activity.watch(idle_max, passing).await;
            }
            Some(ClientTunnel::Ruled(tunnel)) => {
                let target = tunnel.target.clone();
                let withdrawn = network.withdrawn(|rules| target.is_ruled_by(rules));
                match run_until(withdrawn, tunnel.run(socket, first)).await.flatten() {
                    Some(back) => socket = back,
                    None => return,
                }
            }
            None => {
                if let Some(host) = self.ruled_host()
                    && let Some(websocket) = host.take_websocket()
                {
                    let withdrawn = network.withdrawn(|rules| host.target().is_ruled_by(rules));
                    let passing = run_until(withdrawn, websocket.run(&mut socket, &first));
                    let _ = activity.watch(idle_max, passing).await;
                }
            }
        }
        let _ = timeout(DISCARD_WITHIN, linger(&mut socket)).await;
    }

    /// Serves requests over HTTP. Returns the socket, with the bytes behind the last head.
    async fn serve_requests(&self, socket: TcpStream) -> Option<(TcpStream, Vec<u8>)> {
        let idle_max = self.context.limits.idle_max;
        let answer = |request| self.answer(request);
        let served = serve_http1(socket, (&self.activity, &self.report), idle_max, answer).await;
        let ServedHttp1 { mut socket, first, is_late, is_unreadable } = served;
        if is_unreadable {
            let refusal = EgressRefusal::denied(EgressReason::BadRequest);
            self.begin(None, None).refused(refusal.decision, refusal.reason);
            if is_late {
                // Otherwise hyper has answered.
                let _ = socket.try_write(&refusal.bytes());
            }
        }
        if is_late {
            let _ = socket.shutdown().await;
        }
        (!is_late).then_some((socket, first))
    }

    /// Answers one request.
    async fn answer(&self, request: Request<Incoming>) -> Response<ProxyBody> {
        let framing = self.report.take_framing();
        let is_last = self.report.is_last() && request.method() != Method::CONNECT;
        let target = framing.and_then(|_| target::of(&request));
        if !self.is_surplus
            && let Some(target) = &target
            && let Some(is_plain) = self.ruled_by(target)
        {
            return with_end(self.answer_ruled(request, framing, target, is_plain).await, is_last);
        }
        let method = target.as_ref().map(|_| request.method().clone());
        let record = Arc::new(self.begin(target.as_ref(), method.as_ref()));
        let host = target.as_ref().map(|target| target.host.to_string()).unwrap_or_default();
        let refused = RefusedRequest { host, method, is_http2: false };
        let answered = match framing.zip(target) {
            Some((framing, target)) => self.send_on(request, framing, target, &record).await,
            None => Err(EgressRefusal::denied(EgressReason::BadRequest)),
        };
        with_end(answered.unwrap_or_else(|refusal| refusal.answer(&record, &refused)), is_last)
    }

    /// Whether rules decide over requests to `target`, and if so whether these go without TLS.
    fn ruled_by(&self, target: &EgressRequest) -> Option<bool> {
        let network = self.context.policy.network.current();
        match network.route(&target.host, target.port) {
            HostRoute::Ruled { is_plain } => Some(is_plain),
            HostRoute::Listed | HostRoute::Unlisted => None,
        }
    }

    /// Answers a request to a host with rules. Each request in a tunnel has a record of its own, and the
    /// tunnel none.
    async fn answer_ruled(
        &self,
        request: Request<Incoming>,
        framing: Option<Framing>,
        target: &EgressRequest,
        is_plain: bool,
    ) -> Response<ProxyBody> {
        let is_tunnel = target.kind == EgressKind::Tunnel;
        let method = Some(request.method().clone());
        let refused = RefusedRequest { host: target.host.to_string(), method, is_http2: false };
        if is_tunnel == is_plain {
            // Rules without TLS decide over `http://` alone, others over tunnels alone.
            let record = self.begin(Some(target), refused.method.as_ref());
            return EgressRefusal::denied(EgressReason::NoRule).answer(&record, &refused);
        }
        let dialled = DialTarget { host: target.host.clone(), port: target.port, is_plain };
        if is_tunnel {
            let (context, activity) = (Arc::clone(&self.context), self.activity.clone());
            let tunnel = RuledTunnel { context, target: dialled, activity };
            self.become_tunnel(ClientTunnel::Ruled(tunnel));
            return Response::new(ProxyBody::text(Bytes::new()));
        }
        match self.host_of(dialled) {
            Ok(host) => host.answer(request, framing).await,
            Err(reason) => {
                let record = self.begin(Some(target), refused.method.as_ref());
                EgressRefusal::denied(reason).answer(&record, &refused)
            }
        }
    }

    /// The host of a request for `http://`, with the connections to it if the last one went there too.
    fn host_of(&self, target: DialTarget) -> Result<Arc<RuledHost>, EgressReason> {
        if let Some(known) = self.ruled_host().filter(|host| host.is_to(&target.host, target.port))
        {
            return Ok(known);
        }
        let (context, activity) = (Arc::clone(&self.context), self.activity.clone());
        let host = Arc::new(RuledHost::new(context, target, activity)?);
        *self.ruled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&host));
        Ok(host)
    }

    fn ruled_host(&self) -> Option<Arc<RuledHost>> {
        self.ruled.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn become_tunnel(&self, tunnel: ClientTunnel) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
    }

    /// Judges one request, and sends it on if it is allowed.
    async fn send_on(
        &self,
        request: Request<Incoming>,
        framing: Framing,
        target: EgressRequest,
        record: &Arc<OpenRecord>,
    ) -> Result<Response<ProxyBody>, EgressRefusal> {
        let context = &self.context;
        self.judge(&request, &target).map_err(EgressRefusal::denied)?;
        let bytes_max = context.policy.bytes_max;
        let socket = upstream::connect(context, &target, record).await?;
        let (activity, idle_max) = (self.activity.clone(), context.limits.idle_max);
        activity.touch();
        let upstream = MeteredStream::new(socket, Arc::clone(record), activity.clone(), bytes_max);
        if target.kind == EgressKind::Tunnel {
            record.answered(StatusCode::OK.as_u16());
            let tunnel = Tunnel { host: target.host, port: target.port, upstream };
            self.become_tunnel(ClientTunnel::Opaque(tunnel));
            return Ok(Response::new(ProxyBody::text(Bytes::new())));
        }
        let record = Arc::clone(record);
        let exchange = PlainExchange { target, framing, record, activity, idle_max };
        let sent = exchange.run(request, upstream).await;
        let is_malformed = self.report.is_malformed();
        sent.map_err(|refusal| {
            if is_malformed { EgressRefusal::denied(EgressReason::BadRequest) } else { refusal }
        })
    }

    /// Decides over a request that no rules decide over.
    fn judge(
        &self,
        request: &Request<Incoming>,
        target: &EgressRequest,
    ) -> Result<(), EgressReason> {
        let ProxyContext { policy, log, .. } = &*self.context;
        if self.is_surplus {
            return Err(EgressReason::Connections);
        }
        // Before the allow-list, so that the record tells of it whatever the host.
        let network = policy.network.current();
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        if network.is_placeholder_in_host(&target.host)
            || network.holds_placeholder(path, request.headers())
        {
            return Err(EgressReason::SecretHost);
        }
        if policy.judge(target)? != HostRoute::Listed {
            return Err(EgressReason::NotListed);
        }
        if log.bytes() >= policy.bytes_max { Err(EgressReason::Bytes) } else { Ok(()) }
    }

    fn begin(&self, target: Option<&EgressRequest>, method: Option<&Method>) -> OpenRecord {
        let origin = RequestOrigin {
            step: self.context.policy.step.clone(),
            host: target.map(|target| target.host.to_string()).unwrap_or_default(),
            port: target.map_or(0, |target| target.port),
            method: method.map(|method| method.as_str().to_owned()),
        };
        self.context.log.begin(origin)
    }
}

/// Ends our side and discards what the program still sends: closing with unread bytes would reset the
/// connection before the program has read the answer.
async fn linger(socket: &mut TcpStream) {
    let _ = socket.shutdown().await;
    let mut discarded = [0; DISCARD_BYTES];
    while let Ok(1..) = socket.read(&mut discarded).await {}
}
