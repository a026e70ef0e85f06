//! The way to a host: its name is resolved once, its addresses are judged, and one of those is connected
//! to.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::context::ProxyContext;
use super::refusal::EgressRefusal;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::log::OpenRecord;
use crate::egress::policy::EgressRequest;
use cofferdam_core::egress::EgressReason;

/// The least time for one of several addresses.
const ATTEMPT_MIN: Duration = Duration::from_secs(1);

/// Connects to the host of `request`, which the policy allows.
pub async fn connect(
    context: &ProxyContext,
    request: &EgressRequest,
    record: &OpenRecord,
) -> Result<TcpStream, EgressRefusal> {
    let addresses = addresses(context, &request.host).await?;
    let candidates: Vec<SocketAddr> =
        addresses.into_iter().map(|address| SocketAddr::new(address, request.port)).collect();
    let judge = |address: &SocketAddr| {
        context.policy.judge_address(&request.host, *address, is_of_this_host)
    };
    let judged: Vec<_> = candidates.iter().map(|address| (*address, judge(address))).collect();
    let allowed: Vec<SocketAddr> =
        judged.iter().filter(|(_, judged)| judged.is_ok()).map(|(address, _)| *address).collect();
    if let (true, Some((address, Err(reason)))) = (allowed.is_empty(), judged.first()) {
        record.connected(address.ip().to_string());
        return Err(EgressRefusal::denied(*reason));
    }
    let connected = connect_to_one(&allowed, context.limits.connect_within, record).await;
    connected.ok_or(EgressRefusal::failed(EgressReason::Connect))
}

async fn addresses(context: &ProxyContext, host: &AskedHost) -> Result<Vec<IpAddr>, EgressRefusal> {
    let name = match host {
        AskedHost::Address(address) => return Ok(vec![*address]),
        AskedHost::Numeric(_) => return Err(EgressRefusal::denied(EgressReason::Literal)),
        AskedHost::Name(name) => name,
    };
    let found = context.lookups.addresses(name, context.limits.resolve_within).await;
    found.ok_or(EgressRefusal::failed(EgressReason::Unresolved))
}

/// Tries `addresses` one after another, each with its share of the time.
async fn connect_to_one(
    addresses: &[SocketAddr],
    within: Duration,
    record: &OpenRecord,
) -> Option<TcpStream> {
    let deadline = Instant::now() + within;
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let shares = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let share = (left / shares).max(ATTEMPT_MIN).min(left);
        record.connected(address.ip().to_string());
        if let Ok(Ok(socket)) = timeout(share, TcpStream::connect(*address)).await {
            // Sends small messages at once. If the kernel cannot, that only costs time.
            let _ = socket.set_nodelay(true);
            return Some(socket);
        }
    }
    None
}

/// Returns whether `address` is one of this host: a socket can be bound to it.
pub fn is_of_this_host(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok()
}
