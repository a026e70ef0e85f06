//! What a container shows besides the Cell: caches, and the certificates of those whom a command trusts.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::case::cell::error::ExecError;
use crate::case::cell::host::caches::{ContainerCaches, ImageCaches, copy_cache, remove};
use crate::case::cell::host::container::engine::ShownPath;
use crate::case::cell::host::container::relay::{TRUST_DIRECTORY, TrustedFile};
use cofferdam_core::sync::cancel::CancelToken;

/// The end of the directory's name, which begins with that of the Cell.
const SUFFIX: &str = "shown";
/// The directories in it: certificates, the caches that the container shows, and those that provisioning made.
const TRUST: &str = "trust";
const CACHES: &str = "caches";
const MADE: &str = "made";
const PRIVATE_MODE: u32 = 0o700;
/// What others than the caller see: root of a container may be another user here.
const SHOWN_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o444;

/// The directory with all that the containers of one Cell show. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct ShownDirectory {
    path: PathBuf,
    /// Where a container sees each cache, and its path as the Case has it.
    caches: Vec<CachePlace>,
    /// What is kept of them, until it is known what to keep.
    kept: Mutex<Option<ImageCaches>>,
}

/// A cache of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CachePlace {
    path: PathBuf,
    target: PathBuf,
}

/// Certificates that a container shows until this is dropped.
#[derive(Debug)]
pub(super) struct ShownTrust(Vec<PathBuf>);

impl ShownDirectory {
    /// Where the directory of the Cell in `directory` is.
    pub(super) fn path_of(directory: &Path) -> PathBuf {
        let mut name = directory.file_name().unwrap_or_default().to_owned();
        name.push(format!("-{SUFFIX}"));
        directory.with_file_name(name)
    }

    /// Makes it for the Cell in `directory`, without caches.
    pub(super) fn make(directory: &Path) -> Result<Self, ExecError> {
        let made =
            Self { path: Self::path_of(directory), caches: Vec::new(), kept: Mutex::default() };
        let filled = made.make_directories();
        filled.map_err(|error| ExecError::failed("make directory", error))?;
        Ok(made)
    }

    fn make_directories(&self) -> io::Result<()> {
        for (path, mode) in [
            (self.path.clone(), PRIVATE_MODE),
            (self.path.join(CACHES), PRIVATE_MODE),
            (self.path.join(MADE), PRIVATE_MODE),
            (self.path.join(TRUST), SHOWN_MODE),
        ] {
            DirBuilder::new().mode(PRIVATE_MODE).create(&path)?;
            // Whatever the mask of this process is.
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        Ok(())
    }

    /// Adds `caches`, directories below `home` in containers of the image with the id `image`, with what is kept of them
    /// in `all`. Waits for the turn of that image.
    ///
    /// # Errors
    /// It is cancelled, or nothing can be written here.
    pub(super) fn add_caches(
        &mut self,
        (home, caches): (&Path, &[PathBuf]),
        image: &str,
        all: &ContainerCaches,
        cancel: &CancelToken,
    ) -> Result<(), ExecError> {
        if caches.is_empty() {
            return Ok(());
        }
        if !home.is_absolute() {
            let words = format!("HOME in the container is no absolute path: {}", home.display());
            return Err(ExecError::failed("caches", words));
        }
        self.caches = places(home, caches);
        let kept = all.of_image(image, cancel)?;
        for (number, place) in self.caches.iter().enumerate() {
            let shown = self.cache(CACHES, number);
            let failed = |error: io::Error| ExecError::failed("caches", error);
            make_private(&shown).map_err(failed)?;
            if let Err(error) = kept.copy_to(&place.path, &shown) {
                // A Cell can do without.
                log::warn!("the cache {}: {error}", place.path.display());
                remove(&shown).and_then(|()| make_private(&shown)).map_err(failed)?;
            }
        }
        *self.kept() = Some(kept);
        Ok(())
    }

    /// What a container shows of it.
    pub(super) fn paths(&self) -> Vec<ShownPath> {
        let trust = ShownPath {
            source: self.path.join(TRUST),
            target: PathBuf::from(TRUST_DIRECTORY),
            is_read_only: true,
        };
        let caches = self.caches.iter().enumerate().map(|(number, place)| ShownPath {
            source: self.cache(CACHES, number),
            target: place.target.clone(),
            is_read_only: false,
        });
        [trust].into_iter().chain(caches).collect()
    }

    /// Where containers see the caches.
    pub(super) fn cache_targets(&self) -> impl Iterator<Item = &Path> {
        self.caches.iter().map(|place| place.target.as_path())
    }

    /// Keeps the caches as they are for later Cells, once. Nothing runs in the container. What cannot be kept is no
    /// fault of the Cell.
    pub(super) fn keep_caches(&self) {
        let Some(kept) = self.kept().take() else { return };
        for (number, place) in self.caches.iter().enumerate() {
            if let Err(error) = kept.keep(&place.path, &self.cache(CACHES, number)) {
                log::warn!("the cache {} is not kept: {error}", place.path.display());
            }
        }
    }

    /// Lets the containers that start from now on have copies of the caches as they are. Nothing of them is kept for
    /// other Cells from now on.
    ///
    /// # Errors
    /// They cannot be copied.
    pub(super) fn settle_caches(&self) -> Result<(), ExecError> {
        drop(self.kept().take());
        for number in 0..self.caches.len() {
            let (shown, made) = (self.cache(CACHES, number), self.cache(MADE, number));
            let moved = remove(&made).and_then(|()| fs::rename(shown, made));
            moved.map_err(|error| ExecError::failed("caches", error))?;
        }
        self.renew_caches()
    }

    /// Lets the next container have fresh copies of the caches, if they are settled. None runs.
    ///
    /// # Errors
    /// They cannot be copied.
    pub(super) fn renew_caches(&self) -> Result<(), ExecError> {
        for number in 0..self.caches.len() {
            let (shown, made) = (self.cache(CACHES, number), self.cache(MADE, number));
            if made.is_dir() {
                let copied = remove(&shown).and_then(|()| make_private(&shown));
                let copied = copied.and_then(|()| copy_cache(&made, &shown));
                copied.map_err(|error| ExecError::failed("caches", error))?;
            }
        }
        Ok(())
    }

    /// Shows `files` to the container.
    ///
    /// # Errors
    /// They cannot be written; none is shown then.
    pub(super) fn show_trust(&self, files: &[TrustedFile]) -> Result<ShownTrust, ExecError> {
        let mut shown = ShownTrust(Vec::new());
        for TrustedFile { name, contents } in files {
            let path = self.path.join(TRUST).join(name);
            // One that could not be removed is in the way.
            let _ = fs::remove_file(&path);
            let written = write_new(&path, contents);
            shown.0.push(path);
            written.map_err(|error| ExecError::failed("show certificates", error))?;
        }
        Ok(shown)
    }

    fn cache(&self, kind: &str, number: usize) -> PathBuf {
        self.path.join(kind).join(number.to_string())
    }

    fn kept(&self) -> MutexGuard<'_, Option<ImageCaches>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ShownDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            log::error!("remove what a container shows: {error}");
        }
    }
}

impl Drop for ShownTrust {
    fn drop(&mut self) {
        for path in &self.0 {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    log::warn!("{}: {error}", path.display());
                }
                _ => {}
            }
        }
    }
}

/// Where each of `caches` is below `home`. One in another is a part of that.
fn places(home: &Path, caches: &[PathBuf]) -> Vec<CachePlace> {
    let mut found: Vec<CachePlace> = Vec::new();
    // A directory comes before all that is in it.
    for path in caches.iter().collect::<BTreeSet<_>>() {
        if !found.iter().any(|place| path.starts_with(&place.path)) {
            found.push(CachePlace { path: path.clone(), target: home.join(path) });
        }
    }
    found
}

fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PRIVATE_MODE).create(path)
}

/// Writes a file that everyone can read, whatever the mask of this process is.
fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file: File =
        OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(contents)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_in_another_is_a_part_of_it() {
        let caches = [".m2", ".cache/pip", ".m2", ".cache-x", ".cache", ".m2/repository"];
        let caches = caches.map(PathBuf::from);
        let found = places(Path::new("/home/a"), &caches);
        let found: Vec<_> = found.iter().map(|place| place.target.to_str().unwrap()).collect();
        assert_eq!(found, ["/home/a/.cache", "/home/a/.cache-x", "/home/a/.m2"]);
    }

    #[test]
    fn certificates_are_shown_until_the_command_has_ended_and_nothing_is_left() {
        let place = tempfile::tempdir().unwrap();
        let shown = ShownDirectory::make(&place.path().join("cell")).unwrap();
        let trust = shown.path.join(TRUST);
        let count = || fs::read_dir(&trust).unwrap().count();
        let file = TrustedFile { name: "a.pem".into(), contents: b"a".to_vec() };
        let held = shown.show_trust(std::slice::from_ref(&file)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&trust), mode(&trust.join("a.pem")), count()), (0o755, 0o444, 1));
        drop(held);
        assert_eq!(count(), 0);
        drop(shown);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
