//! Whom the programs of one sandbox or workspace trust, for as long as its rules change.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::ServerConfig;

use super::authority::{AuthorityError, AuthorityScope};
use super::certificates::HostCertificates;
use super::shown_files::TrustFiles;
use crate::egress::hosts::address::AddressBlock;
use crate::egress::hosts::literal::AskedHost;
use crate::egress::rules::{LiveNetwork, RuledName};
use cofferdam_core::RootFile;

/// The authority of a sandbox or workspace, and the files by which its programs trust it.
#[derive(Debug)]
pub struct SandboxTrust {
    network: Arc<LiveNetwork>,
    state: Mutex<TrustState>,
}

#[derive(Debug, Default)]
struct TrustState {
    /// The hosts that the authority may speak for.
    names: Vec<RuledName>,
    certificates: Option<Arc<HostCertificates>>,
    files: Option<TrustFiles>,
}

impl SandboxTrust {
    /// The authority for the rules of `network`, made when it is needed.
    pub fn new(network: Arc<LiveNetwork>) -> Self {
        Self { network, state: Mutex::default() }
    }

    /// Whether there is anybody to trust.
    pub fn is_needed(&self) -> bool {
        !self.network.current().tls_names().is_empty()
    }

    /// How the proxy speaks TLS for `host`.
    ///
    /// # Errors
    /// The authority cannot be made, or cannot speak for that host.
    pub fn config(&self, host: &AskedHost) -> Result<Arc<ServerConfig>, AuthorityError> {
        self.certificates(&mut self.state())?.config(host)
    }

    /// The files that a sandbox shows, of whose root `read` returns a file's contents. They are made in
    /// `directory`, and have no root of ours until there is anybody to trust.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn shown_files(
        &self,
        directory: &Path,
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> io::Result<Vec<RootFile>> {
        let mut state = self.state();
        let is_needed = self.is_needed() || state.certificates.is_some();
        let certificates = is_needed.then(|| self.certificates(&mut state)).transpose();
        let certificates = certificates.map_err(io::Error::other)?;
        if state.files.is_none() {
            let root = certificates.as_ref().map(|certificates| certificates.root());
            state.files = Some(TrustFiles::write(directory, root, read)?);
        }
        Ok(state.files.as_ref().map(TrustFiles::shown).unwrap_or_default())
    }

    /// Makes a new authority if the rules name other hosts now, and replaces the files. Programs that have
    /// read the old ones do not trust it.
    ///
    /// # Errors
    /// It cannot be made, or the files cannot be written.
    pub fn refresh(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.files.is_none() || !self.is_needed() {
            return Ok(());
        }
        // A tunnel may have made it already; the files say what they have.
        let now = self.certificates(&mut state).map_err(io::Error::other)?;
        state.files.as_mut().map_or(Ok(()), |files| files.replace(now.root()))
    }

    /// The authority, which speaks for all hosts of the rules.
    fn certificates(
        &self,
        state: &mut MutexGuard<'_, TrustState>,
    ) -> Result<Arc<HostCertificates>, AuthorityError> {
        let names = self.network.current().tls_names();
        if let Some(known) = &state.certificates
            && names.iter().all(|name| state.names.contains(name))
        {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(HostCertificates::new(&scope_of(&names))?);
        state.names = names;
        state.certificates = Some(Arc::clone(&made));
        Ok(made)
    }

    fn state(&self) -> MutexGuard<'_, TrustState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scope_of(names: &[RuledName]) -> AuthorityScope {
    let mut scope = AuthorityScope::default();
    for name in names {
        match name {
            RuledName::Name(name) | RuledName::Below(name) => scope.names.push(name.clone()),
            RuledName::Block(first, bits) => {
                scope.blocks.extend(AddressBlock::new(*first, *bits));
            }
        }
    }
    scope
}
