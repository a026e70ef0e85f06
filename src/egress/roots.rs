//! The certificates that this host trusts, and the file that may add to them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Where systems keep the certificates that they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];
/// The largest bundle that is read, in bytes.
pub const BUNDLE_BYTES_MAX: u64 = 8 << 20;

/// Reads the file at `path` up to [`BUNDLE_BYTES_MAX`].
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read_bundle(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BUNDLE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BUNDLE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than a bundle may be"));
    }
    Ok(bytes)
}

/// The certificates that this host trusts; none if it has no bundle.
pub fn host_bundle() -> Vec<u8> {
    let found = BUNDLES.into_iter().find(|path| Path::new(path).is_file());
    let Some(path) = found else { return Vec::new() };
    read_bundle(Path::new(path)).unwrap_or_else(|error| {
        log::warn!("{path}: {error}");
        Vec::new()
    })
}

/// What the proxies of one service verify hosts by. Clones are the same one; it is read when it is first
/// needed.
#[derive(Debug, Clone, Default)]
pub struct UpstreamRoots(Arc<Mutex<RootsState>>);

/// Two are equal that trust the same beside the system's.
impl PartialEq for UpstreamRoots {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        // One lock after the other.
        let added = self.state().added.clone();
        added == other.state().added
    }
}

impl Eq for UpstreamRoots {}

#[derive(Debug, Default)]
struct RootsState {
    /// Certificates beside the system's.
    added: Vec<CertificateDer<'static>>,
    store: Option<Arc<RootCertStore>>,
}

impl UpstreamRoots {
    /// Also trusts the certificates in the file at `path`.
    ///
    /// # Errors
    /// It cannot be read, or holds no certificate, or one that is malformed.
    pub fn add_file(&self, path: &Path) -> io::Result<()> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let bytes = read_bundle(path)?;
        let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
        let added = parsed.map_err(|error| invalid(error.to_string()))?;
        if added.is_empty() {
            return Err(invalid("it holds no certificate".to_owned()));
        }
        let mut trial = RootCertStore::empty();
        for certificate in &added {
            trial.add(certificate.clone()).map_err(|error| invalid(error.to_string()))?;
        }
        let mut state = self.state();
        state.added.extend(added);
        state.store = None;
        Ok(())
    }

    /// The certificates that hosts are verified by.
    pub fn store(&self) -> Arc<RootCertStore> {
        let mut state = self.state();
        if let Some(store) = &state.store {
            return Arc::clone(store);
        }
        let mut store = RootCertStore::empty();
        let bundle = host_bundle();
        let known = CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok);
        // One of the system's that cannot be used is left out, as other programs do.
        store.add_parsable_certificates(known.chain(state.added.iter().cloned()));
        let store = Arc::new(store);
        state.store = Some(Arc::clone(&store));
        store
    }

    fn state(&self) -> MutexGuard<'_, RootsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
