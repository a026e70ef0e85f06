//! The certificates of hosts, as the proxy shows them to the programs of one sandbox.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::sign;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use super::authority::{Authority, AuthorityError, AuthorityScope};
use super::ciphers::fast_provider;
use crate::egress::hosts::literal::AskedHost;

/// Hosts whose certificates are kept.
const HOSTS_MAX: usize = 128;
/// How long a certificate is used: much less than it is valid.
const USED_FOR: Duration = Duration::from_secs(30 * 86_400);
/// What the proxy speaks, the best first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The certificates of one authority.
pub struct HostCertificates {
    authority: Authority,
    key: Arc<dyn SigningKey>,
    provider: Arc<CryptoProvider>,
    kept: Mutex<BTreeMap<String, KeptConfig>>,
}

#[derive(Debug)]
struct KeptConfig {
    config: Arc<ServerConfig>,
    made: Instant,
}

impl fmt::Debug for HostCertificates {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HostCertificates").finish_non_exhaustive()
    }
}

impl HostCertificates {
    /// Makes an authority for the hosts of `scope`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(scope: &AuthorityScope) -> Result<Self, AuthorityError> {
        let authority = Authority::new(scope)?;
        let key = sign::any_ecdsa_type(&authority.host_key())?;
        Ok(Self { authority, key, provider: fast_provider(), kept: Mutex::default() })
    }

    /// The certificate that the sandbox trusts.
    pub fn root(&self) -> &CertificateDer<'static> {
        self.authority.root()
    }

    /// How the proxy speaks TLS for `host`.
    ///
    /// # Errors
    /// No certificate can have that name.
    pub fn config(&self, host: &AskedHost) -> Result<Arc<ServerConfig>, AuthorityError> {
        let name = host.to_string();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(&name).filter(|known| known.made.elapsed() < USED_FOR) {
            return Ok(Arc::clone(&known.config));
        }
        let config = Arc::new(self.make(host)?);
        if kept.len() >= HOSTS_MAX {
            let oldest = kept.iter().min_by_key(|(_, known)| known.made);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.into_iter().for_each(|name| drop(kept.remove(&name)));
        }
        kept.insert(name, KeptConfig { config: Arc::clone(&config), made: Instant::now() });
        Ok(config)
    }

    fn make(&self, host: &AskedHost) -> Result<ServerConfig, AuthorityError> {
        let chain = self.authority.certificates(host)?;
        let certified = CertifiedKey::new(chain, Arc::clone(&self.key));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ignore_client_order = true;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // A session is not resumed: that would be another place where a host is remembered.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}
