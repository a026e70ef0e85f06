//! Names to addresses that the service may connect to: the connection goes to what was judged.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::error::DownloadError;
use crate::egress::EgressTerms;

/// How long a lookup may take.
const RESOLVE_WITHIN: Duration = Duration::from_secs(10);
/// The most addresses of one name that are considered.
const ADDRESSES_MAX: usize = 16;

/// Resolves names, and judges their addresses.
#[derive(Debug)]
pub struct JudgingResolver {
    terms: EgressTerms,
    denied: DeniedAddress,
}

/// The last refusal, which the client's own errors do not carry. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct DeniedAddress(Arc<Mutex<Option<DownloadError>>>);

impl DeniedAddress {
    /// Takes the refusal, if there was one.
    pub fn take(&self) -> Option<DownloadError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: DownloadError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl JudgingResolver {
    /// By `terms`. What they refuse is told to `denied`.
    pub fn new(terms: EgressTerms, denied: DeniedAddress) -> Self {
        Self { terms, denied }
    }
}

impl Resolver for JudgingResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let within = timeout.not_zero().map_or(RESOLVE_WITHIN, |left| (*left).min(RESOLVE_WITHIN));
        let mut found = self.empty();
        let mut refused = None;
        for ip in lookup(host, within)?.into_iter().take(ADDRESSES_MAX) {
            let address = SocketAddr::new(ip.to_canonical(), port);
            match self.terms.judge_address(host, address) {
                Ok(()) => found.push(address),
                Err(reason) => refused = Some(reason),
            }
        }
        if found.is_empty() {
            if let Some(reason) = refused {
                self.denied.set(DownloadError::UrlDenied { host: host.to_owned(), port, reason });
            }
            return Err(ureq::Error::HostNotFound);
        }
        Ok(found)
    }
}

/// The system's resolver blocks, so it has a thread, which is left behind if it takes too long.
fn lookup(host: &str, within: Duration) -> Result<Vec<IpAddr>, ureq::Error> {
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (tell, told) = sync_channel(1);
    let resolve = move || {
        let found = (bare.as_str(), 0).to_socket_addrs();
        let found = found.map(|addresses| addresses.map(|address| address.ip()).collect());
        // The download may have given up.
        let _ = tell.send(found);
    };
    Builder::new().name("resolve".to_owned()).spawn(resolve).map_err(ureq::Error::Io)?;
    let found = told.recv_timeout(within).map_err(|_| ureq::Error::HostNotFound)?;
    found.map_err(|_| ureq::Error::HostNotFound)
}
