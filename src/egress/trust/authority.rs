//! The authority of one sandbox, by whose certificates the proxy speaks for the hosts that have rules.
//!
//! The root is trusted in the sandbox and can sign nothing: its key is gone once it has signed the one
//! intermediate. That one is constrained to the names and addresses of the rules. It has the constraint, and
//! not the root, since some clients ignore what a trusted certificate says of itself. All addresses that are
//! not listed are excluded, since a constraint on names alone lets certificates of addresses pass. Clients
//! differ in what they heed; what the proxy compares decides.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use uuid::Uuid;
use zeroize::Zeroize;

use crate::egress::hosts::address::AddressBlock;
use crate::egress::hosts::literal::AskedHost;
use cofferdam_core::weakened::{self, Wall};

/// How far a client's clock may be behind ours.
const BEFORE: Duration = Duration::from_secs(3600);
/// How long the authority is valid: longer than any sandbox lives.
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long the certificate of a host is valid. Some clients refuse more than 398 days.
const LEAF_LIFETIME: Duration = Duration::from_secs(397 * 86_400);
/// The names of an authority without names: none of them can exist.
const NO_NAME: &str = "invalid";
const EVERY_ADDRESS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// The hosts that an authority may speak for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorityScope {
    /// Names, each with all below it.
    pub names: Vec<String>,
    /// Addresses.
    pub blocks: Vec<AddressBlock>,
}

/// The authority cannot be made, or cannot sign.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A certificate cannot be made.
    #[error("the authority of the sandbox: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot use it.
    #[error("the authority of the sandbox: {0}")]
    Tls(#[from] rustls::Error),
}

/// A certificate authority in memory.
pub struct Authority {
    root: CertificateDer<'static>,
    intermediate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    /// One key for the certificates of all hosts: they are all ours.
    host_key: KeyPair,
}

impl fmt::Debug for Authority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Authority([redacted])")
    }
}

impl Authority {
    /// Makes the authority of a sandbox for the hosts of `scope`.
    ///
    /// # Errors
    /// A key cannot be made, or a name cannot be in a certificate.
    pub fn new(scope: &AuthorityScope) -> Result<Self, AuthorityError> {
        let mut root_key = generate()?;
        let root_params = authority_params("Cofferdam sandbox root", AUTHORITY_LIFETIME, None);
        let root = root_params.self_signed(&root_key)?.der().clone();
        let intermediate_key = generate()?;
        let mut params = authority_params("Cofferdam sandbox", AUTHORITY_LIFETIME, Some(0));
        params.use_authority_key_identifier_extension = true;
        if !weakened::lacks(Wall::Constraint) {
            params.name_constraints = Some(constraints(scope));
        }
        let signed =
            params.signed_by(&intermediate_key, &Issuer::from_params(&root_params, &root_key));
        root_key.zeroize();
        let intermediate = signed?.der().clone();
        let issuer = Issuer::new(params, intermediate_key);
        Ok(Self { root, intermediate, issuer, host_key: generate()? })
    }

    /// The certificate that the sandbox trusts.
    pub fn root(&self) -> &CertificateDer<'static> {
        &self.root
    }

    /// The key of the certificates of hosts.
    pub fn host_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.host_key.serialize_der().into())
    }

    /// A certificate for `host`, with the one that signed it behind.
    ///
    /// # Errors
    /// The name cannot be in a certificate.
    pub fn certificates(
        &self,
        host: &AskedHost,
    ) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
        let name = match host {
            AskedHost::Address(address) => SanType::IpAddress(*address),
            AskedHost::Name(name) | AskedHost::Numeric(name) => {
                SanType::DnsName(name.as_str().try_into()?)
            }
        };
        let mut params = params("Cofferdam egress", LEAF_LIFETIME);
        params.subject_alt_names = vec![name];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&self.host_key, &self.issuer)?;
        Ok(vec![leaf.der().clone(), self.intermediate.clone()])
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.host_key.zeroize();
    }
}

fn generate() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

fn authority_params(name: &str, lifetime: Duration, depth: Option<u8>) -> CertificateParams {
    let mut params = params(name, lifetime);
    let depth = depth.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained);
    params.is_ca = IsCa::Ca(depth);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn params(name: &str, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    // Words that no client takes for a host.
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = date_time_ymd(1970, 1, 1) + Duration::from_secs(since_epoch.as_secs());
    params.not_before = now - BEFORE;
    params.not_after = now + lifetime;
    // Clients refuse two certificates of one signer with one number. A number is positive.
    let mut number = Uuid::new_v4().into_bytes();
    number[0] = number[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&number));
    params
}

/// A family of addresses is permitted as far as it is listed, and otherwise excluded as a whole.
fn constraints(scope: &AuthorityScope) -> NameConstraints {
    let mut names: Vec<&str> = scope.names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        names.push(NO_NAME);
    }
    let blocks = scope.blocks.iter().map(|block| (block.first(), block.prefix_bits()));
    let subtree = |(first, bits): (IpAddr, u8)| {
        GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(first, bits))
    };
    let is_listed = |family: &IpAddr| {
        scope.blocks.iter().any(|block| block.first().is_ipv4() == family.is_ipv4())
    };
    let excluded = EVERY_ADDRESS.into_iter().filter(|family| !is_listed(family));
    let permitted_names = names.into_iter().map(|name| GeneralSubtree::DnsName(name.to_owned()));
    NameConstraints {
        permitted_subtrees: permitted_names.chain(blocks.map(subtree)).collect(),
        excluded_subtrees: excluded.map(|family| subtree((family, 0))).collect(),
    }
}
