//! The files by which programs trust an authority, on this host. They hold nothing secret.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use uuid::Uuid;

use super::bundles::{TrustFile, trust_files, with_other_root};
use crate::egress::roots::host_bundle;
use cofferdam_core::RootFile;

/// A directory with the files. Dropping it removes them.
#[derive(Debug)]
pub struct TrustFiles {
    directory: PathBuf,
    shown: Vec<RootFile>,
    root: Option<CertificateDer<'static>>,
}

impl TrustFiles {
    /// Writes the files of `root`, or as they are without one, in a directory of their own in `parent`, for a sandbox, of whose root `read`
    /// returns a file's contents.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(
        parent: &Path,
        root: Option<&CertificateDer<'_>>,
        read: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> io::Result<Self> {
        let directory = parent.join(format!("trust-{}", Uuid::new_v4()));
        DirBuilder::new().mode(0o700).create(&directory)?;
        let root = root.map(|root| root.clone().into_owned());
        let mut files = Self { directory, shown: Vec::new(), root };
        for (number, TrustFile { path, contents }) in
            trust_files(files.root.as_ref(), read, &host_bundle).into_iter().enumerate()
        {
            let source = files.directory.join(number.to_string());
            create(&source, &contents)?;
            files.shown.push(RootFile { source, target: path });
        }
        Ok(files)
    }

    /// Lets the files hold `root` instead. They stay the same files, since sandboxes show them.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn replace(&mut self, root: &CertificateDer<'_>) -> io::Result<()> {
        if self.root.as_ref() == Some(root) {
            return Ok(());
        }
        for RootFile { source, .. } in &self.shown {
            let mut file = OpenOptions::new().read(true).write(true).open(source)?;
            let mut before = Vec::new();
            file.read_to_end(&mut before)?;
            let now = with_other_root(&before, self.root.as_ref(), root);
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&now)?;
            file.set_len(now.len() as u64)?;
        }
        self.root = Some(root.clone().into_owned());
        Ok(())
    }

    /// What the sandbox shows.
    pub fn shown(&self) -> Vec<RootFile> {
        self.shown.clone()
    }
}

impl Drop for TrustFiles {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.directory) {
            // The sandboxes ended before, and with them everything in `parent`.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("{}: {error}", self.directory.display());
            }
            _ => {}
        }
    }
}

/// Makes a file that everyone can read, whatever the mask of this process.
fn create(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(contents)?;
    file.set_permissions(fs::Permissions::from_mode(0o444))
}
