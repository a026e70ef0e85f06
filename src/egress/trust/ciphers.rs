//! What TLS is spoken with.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;

/// AES with keys of 128 bits, which takes less time than the longer keys that the library prefers.
const FIRST: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// The ciphers of the library, the fastest first.
pub fn fast_provider() -> Arc<CryptoProvider> {
    let mut provider = default_provider();
    provider.cipher_suites.sort_by_key(|suite| !FIRST.contains(&suite.suite()));
    Arc::new(provider)
}

#[cfg(test)]
mod tests {
    use rustls::SupportedCipherSuite;

    use super::*;

    #[test]
    fn the_fastest_ciphers_come_first_and_none_is_missing() {
        let suites: Vec<CipherSuite> =
            fast_provider().cipher_suites.iter().map(SupportedCipherSuite::suite).collect();
        assert!(suites[..FIRST.len()].iter().all(|suite| FIRST.contains(suite)), "{suites:?}");
        assert_eq!(suites.len(), default_provider().cipher_suites.len());
    }
}
