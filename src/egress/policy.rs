//! The decisions over one request: pure, but for the addresses of this host.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cofferdam_core::egress::EgressReason;
use cofferdam_core::weakened::{self, Wall};

use super::hosts::address::is_public;
use super::hosts::allow_list::AllowList;
use super::hosts::literal::AskedHost;
use super::rules::live::LiveNetwork;
use super::rules::network::HostRoute;

/// What one sandbox or workspace may reach.
#[derive(Debug, Clone)]
pub struct EgressPolicy {
    /// The hosts that may be asked for, and the rules over requests to them.
    pub network: Arc<LiveNetwork>,
    /// The hosts and addresses that may be reached although they are not public. An entry without a port
    /// is for all ports.
    pub private_hosts: AllowList,
    /// The listeners of the service itself, which are never reached. An unspecified address stands for
    /// every address of this host.
    pub own_addresses: Vec<SocketAddr>,
    /// The maximum of bytes in both directions, over all proxies of one log.
    pub bytes_max: u64,
    /// The step that records name.
    pub step: Option<String>,
}

/// Where a request wants to go, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRequest {
    /// The host.
    pub host: AskedHost,
    /// The port.
    pub port: u16,
    /// What is to be sent there.
    pub kind: EgressKind,
}

/// What a request sends to its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressKind {
    /// Bytes that begin with TLS.
    Tunnel,
    /// One HTTP request.
    Plain,
}

impl EgressPolicy {
    /// Decides what decides over `request`, before anything is resolved: the allow-list, which allows it, or
    /// rules.
    pub fn judge(&self, request: &EgressRequest) -> Result<HostRoute, EgressReason> {
        let EgressRequest { host, port, kind: EgressKind::Tunnel | EgressKind::Plain } = request;
        let network = self.network.current();
        match network.route(host, *port) {
            HostRoute::Unlisted if weakened::lacks(Wall::Allow) => return Ok(HostRoute::Listed),
            HostRoute::Unlisted => {}
            route => return Ok(route),
        }
        let is_name = matches!(host, AskedHost::Name(_));
        Err(if is_name || network.names(host) {
            EgressReason::NotListed
        } else {
            EgressReason::Literal
        })
    }

    /// Decides whether a request for `host` may go to `address`, which is canonical. `is_local` says
    /// whether an address is one of this host.
    pub fn judge_address(
        &self,
        host: &AskedHost,
        address: SocketAddr,
        is_local: impl Fn(IpAddr) -> bool,
    ) -> Result<(), EgressReason> {
        if weakened::lacks(Wall::Address) {
            return Ok(());
        }
        let (ip, port) = (address.ip(), address.port());
        let is_own = |own: &SocketAddr| {
            let own_ip = own.ip().to_canonical();
            let is_of_all = own_ip.is_unspecified() && is_local(ip);
            own.port() == port && (own_ip == ip || ip.is_unspecified() || is_of_all)
        };
        if self.own_addresses.iter().any(is_own) {
            return Err(EgressReason::OwnAddress);
        }
        let is_permitted = || {
            let by_address = AskedHost::Address(ip);
            [host, &by_address].into_iter().any(|host| self.private_hosts.permits(host, port))
        };
        if is_public(ip) || is_permitted() { Ok(()) } else { Err(EgressReason::PrivateAddress) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowList {
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        AllowList::parse(&entries).unwrap()
    }

    fn policy() -> EgressPolicy {
        EgressPolicy {
            network: Arc::new(list(&["pypi.org", "127.0.0.1:80"]).into()),
            private_hosts: list(&["db.internal:5432", "10.0.0.0/8"]),
            own_addresses: vec!["0.0.0.0:4040".parse().unwrap(), "10.0.0.5:9000".parse().unwrap()],
            bytes_max: 0,
            step: None,
        }
    }

    #[test]
    fn a_request_for_a_host_that_is_not_listed_is_denied() {
        for kind in [EgressKind::Tunnel, EgressKind::Plain] {
            for (host, port, expected) in [
                ("pypi.org", 443, Ok(HostRoute::Listed)),
                ("pypi.org", 80, Err(EgressReason::NotListed)),
                ("evil.example", 443, Err(EgressReason::NotListed)),
                ("0177.1", 80, Ok(HostRoute::Listed)),
                ("127.0.0.1", 81, Err(EgressReason::NotListed)),
                ("127.0.0.2", 80, Err(EgressReason::Literal)),
                ("0x7f000002", 80, Err(EgressReason::Literal)),
                ("300.1.1.1", 80, Err(EgressReason::Literal)),
                ("[::1]", 80, Err(EgressReason::Literal)),
                ("[fe80::1%25eth0]", 80, Err(EgressReason::Literal)),
            ] {
                let host_asked = AskedHost::parse(host).unwrap();
                let request = EgressRequest { host: host_asked, port, kind };
                assert_eq!(policy().judge(&request), expected, "{host}:{port}");
            }
        }
    }

    #[test]
    fn an_address_that_is_not_public_has_to_be_permitted_and_an_own_one_cannot_be() {
        let name = |name: &str| AskedHost::Name(name.to_owned());
        let is_local =
            |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip.to_string() == "8.8.4.4";
        for (host, address, expected) in [
            ("a.example", "8.8.8.8:443", Ok(())),
            ("a.example", "127.0.0.1:443", Err(EgressReason::PrivateAddress)),
            ("a.example", "169.254.169.254:80", Err(EgressReason::PrivateAddress)),
            ("a.example", "10.1.2.3:443", Ok(())),
            ("a.example", "192.168.1.1:5432", Err(EgressReason::PrivateAddress)),
            ("db.internal", "192.168.1.1:5432", Ok(())),
            ("db.internal", "192.168.1.1:5433", Err(EgressReason::PrivateAddress)),
            ("a.example", "127.0.0.1:4040", Err(EgressReason::OwnAddress)),
            ("a.example", "0.0.0.0:4040", Err(EgressReason::OwnAddress)),
            ("a.example", "8.8.4.4:4040", Err(EgressReason::OwnAddress)),
            ("a.example", "8.8.8.8:4040", Ok(())),
            ("a.example", "10.0.0.5:9000", Err(EgressReason::OwnAddress)),
            ("a.example", "10.0.0.6:9000", Ok(())),
            ("a.example", "0.0.0.0:9000", Err(EgressReason::OwnAddress)),
        ] {
            let judged = policy().judge_address(&name(host), address.parse().unwrap(), is_local);
            assert_eq!(judged, expected, "{host} {address}");
        }
    }
}
