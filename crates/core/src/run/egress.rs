//! The way out of a sandbox: a socket in its network namespace, and what serves it.

use std::fmt::Debug;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::sync::retained::Retained;

/// The port of the socket, on 127.0.0.1 of the sandbox.
pub const EGRESS_PORT: u16 = 3128;

/// A file of this host that a sandbox shows read-only, instead of its own if it has one there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFile {
    /// Its absolute path on the host.
    pub source: PathBuf,
    /// Its absolute path in the sandbox.
    pub target: &'static str,
}

/// Serves the socket of a sandbox that may reach something. A sandbox without it has its loopback
/// alone.
pub trait EgressService: Debug + Send + Sync {
    /// Serves `listener`, a socket in the network namespace of the sandbox, until what is returned is
    /// dropped, which closes every connection. Called on a thread outside of that namespace, before
    /// the program begins.
    ///
    /// # Errors
    /// It cannot be served; the program does not begin.
    fn serve(&self, listener: TcpListener) -> io::Result<Retained>;

    /// Files below HOME that tell programs how they reach something: each path with the contents.
    fn home_files(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Whether the sandbox shows files that tell programs whom they trust. They are known when the sandbox
    /// is planned, so one that was prepared before has none.
    fn shows_files(&self) -> bool {
        false
    }

    /// These files, made in `directory`, which does not outlive this process or the next start of one. `read`
    /// returns the contents of a file of the sandbox's root, if it has that file.
    ///
    /// # Errors
    /// They cannot be made; the program does not begin.
    fn shown_files(
        &self,
        directory: &Path,
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> io::Result<Vec<RootFile>> {
        let _ = (directory, read);
        Ok(Vec::new())
    }
}
