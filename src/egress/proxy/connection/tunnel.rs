//! A tunnel: bytes in both directions, once they began with a ClientHello for the host that was asked for.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::egress::client_hello::{self, FirstBytes, HELLO_BYTES_MAX};
use crate::egress::hosts::literal::AskedHost;
use crate::egress::policy::{EgressKind, EgressRequest};
use crate::egress::proxy::metered::MeteredStream;
use cofferdam_core::egress::{EgressDecision, EgressReason};
use cofferdam_core::weakened::{self, Wall};

/// The buffer of each direction.
const COPY_BYTES: usize = 32 * 1024;
/// The alert of TLS that tells a client why its tunnel ends: fatal, access denied.
pub const ACCESS_DENIED: [u8; 7] = [21, 3, 1, 0, 2, 2, 49];

/// A tunnel that the policy allows and whose host is connected.
pub struct Tunnel {
    pub host: AskedHost,
    pub port: u16,
    pub upstream: MeteredStream,
}

impl Tunnel {
    /// Where it leads.
    pub fn target(&self) -> EgressRequest {
        EgressRequest { host: self.host.clone(), port: self.port, kind: EgressKind::Tunnel }
    }

    /// Carries bytes between `client`, of which `first` are read already, and the host until both are
    /// done.
    pub async fn run(mut self, client: &mut TcpStream, first: Vec<u8>) -> io::Result<()> {
        let Some(hello) = read_hello(client, first).await? else { return Ok(()) };
        let refused = match client_hello::read(&hello) {
            FirstBytes::Hello(name) => {
                let is_for = is_for(&self.host, name) || weakened::lacks(Wall::Sni);
                (!is_for).then_some(EgressReason::Sni)
            }
            FirstBytes::Incomplete | FirstBytes::NotTls => Some(EgressReason::NoTls),
        };
        if let Some(reason) = refused {
            self.upstream.record().refused(EgressDecision::Denied, reason);
            if reason == EgressReason::Sni {
                client.write_all(&ACCESS_DENIED).await?;
            }
            return Ok(());
        }
        self.upstream.write_all(&hello).await?;
        drop(hello);
        let Self { upstream, .. } = &mut self;
        copy_bidirectional_with_sizes(client, upstream, COPY_BYTES, COPY_BYTES).await?;
        Ok(())
    }
}

/// Reads until the first bytes are known to be a ClientHello or not. Returns `None` if the program sends
/// nothing at all.
pub async fn read_hello(client: &mut TcpStream, first: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = first;
    while client_hello::read(&bytes) == FirstBytes::Incomplete {
        let left = HELLO_BYTES_MAX.saturating_sub(bytes.len());
        if (&mut *client).take(left as u64).read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
}

/// Whether the name of a ClientHello is the host: an address has none.
pub fn is_for(host: &AskedHost, name: Option<String>) -> bool {
    match (host, name) {
        (AskedHost::Name(host), Some(name)) => *host == name.strip_suffix('.').unwrap_or(&name),
        (AskedHost::Address(_), None) => true,
        _ => false,
    }
}
