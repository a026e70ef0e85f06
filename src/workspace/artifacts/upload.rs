//! Saves a version piece by piece.

use std::fmt;
use std::fs::File;
use std::io::Write;

use nix::unistd::fsync;
use serde::Serialize;

use super::key::ArtifactKey;
use super::store::ArtifactStore;
use super::version_file::{VersionFacts, write_facts};
use crate::store::errno_of;
use crate::workspace::disk::{StoreReservation, file_charge};
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_core::values::digest::Digest;

/// The longest media type, bytes.
pub const MIME_TYPE_BYTES_MAX: usize = 255;
/// The most that a version takes besides its bytes.
const FACTS_CHARGE: u64 = 1024;

/// A version that is being received. Dropping it leaves nothing.
pub struct ArtifactUpload {
    store: ArtifactStore,
    key: ArtifactKey,
    mime_type: String,
    /// The file in `incoming`.
    temporary: TemporaryName,
    file: File,
    digest: Digest,
    bytes: u64,
    reservation: StoreReservation,
}

/// A version that was received as a whole. Dropping it leaves nothing.
pub struct SealedUpload {
    store: ArtifactStore,
    key: ArtifactKey,
    temporary: TemporaryName,
    reservation: StoreReservation,
    facts: VersionFacts,
}

/// Removes the file of an upload that was not published.
struct TemporaryName {
    store: ArtifactStore,
    name: String,
}

impl Drop for TemporaryName {
    fn drop(&mut self) {
        // A published version has moved away.
        let _ = self.store.inner.incoming.unlink(&self.name);
    }
}

impl fmt::Debug for ArtifactUpload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, bytes, .. } = self;
        out.debug_struct("ArtifactUpload").field("key", key).field("bytes", bytes).finish()
    }
}

impl fmt::Debug for SealedUpload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, facts, .. } = self;
        out.debug_struct("SealedUpload").field("key", key).field("facts", facts).finish()
    }
}

/// A saved version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SavedVersion {
    /// The name of the artifact.
    pub name: String,
    /// The version.
    pub version: u64,
    /// `artifact://name@version`.
    pub r#ref: String,
    /// The SHA-256 of the bytes, 64 hexadecimal digits.
    pub sha256: String,
    /// The number of bytes.
    pub size_bytes: u64,
}

impl ArtifactStore {
    /// Begins to save a version of `key`. `bytes_announced` is its size, as far as the sender says.
    ///
    /// # Errors
    /// It is too large, there is no room, or the store cannot be written.
    pub fn upload(
        &self,
        key: ArtifactKey,
        mime_type: &str,
        bytes_announced: u64,
    ) -> Result<ArtifactUpload, EngineError> {
        let is_header_text = mime_type.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if mime_type.is_empty() || mime_type.len() > MIME_TYPE_BYTES_MAX || !is_header_text {
            let words = format!("want 1 to {MIME_TYPE_BYTES_MAX} printable characters of ASCII");
            return Err(EngineError::invalid("Content-Type", words));
        }
        self.check_bytes(bytes_announced)?;
        // Reserved only as the bytes arrive: a sender that is slow must not keep others out.
        self.inner.quota.check(file_charge(bytes_announced.saturating_add(FACTS_CHARGE)))?;
        let name = uuid::Uuid::new_v4().simple().to_string();
        let mut reservation = self.inner.quota.reservation();
        reservation.raise_to(file_charge(FACTS_CHARGE))?;
        let file = self.inner.incoming.create_file(&name)?;
        let temporary = TemporaryName { store: self.clone(), name };
        let (store, mime_type) = (self.clone(), mime_type.to_owned());
        let digest = Digest::default();
        Ok(ArtifactUpload { store, key, mime_type, temporary, file, digest, bytes: 0, reservation })
    }

    /// Saves a version of `key` with these bytes.
    ///
    /// # Errors
    /// As [`ArtifactStore::upload`].
    pub fn save(
        &self,
        key: ArtifactKey,
        mime_type: &str,
        bytes: &[u8],
    ) -> Result<SavedVersion, EngineError> {
        let mut upload = self.upload(key, mime_type, bytes.len() as u64)?;
        upload.write(bytes)?;
        upload.finish()
    }

    fn check_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        let bytes_max = self.inner.version_bytes_max;
        if bytes <= bytes_max {
            return Ok(());
        }
        let words = format!("an artifact of more than {bytes_max} bytes (ENGINE_ARTIFACT_MAX)");
        Err(EngineError::new(EngineCode::TooLarge, words).with("bytes_max", bytes_max))
    }
}

impl ArtifactUpload {
    /// Adds the next bytes.
    ///
    /// # Errors
    /// There are too many, there is no room, or the store cannot be written.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), EngineError> {
        self.check(piece.len())?;
        let bytes = self.bytes.saturating_add(piece.len() as u64);
        self.reservation.raise_to(file_charge(bytes.saturating_add(FACTS_CHARGE)))?;
        self.file.write_all(piece).map_err(|error| self.failed("write", &error))?;
        self.digest.update(piece);
        self.bytes = bytes;
        Ok(())
    }

    /// Refuses `more_bytes`, if the version would be too large with them.
    ///
    /// # Errors
    /// [`EngineCode::TooLarge`].
    pub fn check(&self, more_bytes: usize) -> Result<(), EngineError> {
        self.store.check_bytes(self.bytes.saturating_add(more_bytes as u64))
    }

    /// The bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes what was received the next version. When this returns, it is on the disk.
    ///
    /// # Errors
    /// The store cannot be written. There is no new version then.
    pub fn finish(self) -> Result<SavedVersion, EngineError> {
        self.seal()?.publish()
    }

    /// Ends the bytes, and writes them to the disk.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn seal(mut self) -> Result<SealedUpload, EngineError> {
        let facts = VersionFacts {
            sha256: std::mem::take(&mut self.digest).finish(),
            size_bytes: self.bytes,
            mime_type: std::mem::take(&mut self.mime_type),
        };
        let written = write_facts(&mut self.file, &facts).and_then(|()| self.file.metadata());
        let file_bytes = written.map_err(|error| self.failed("write", &error))?.len();
        // Exactly what a restart would count, and what a deletion frees.
        self.reservation.raise_to(file_charge(file_bytes))?;
        self.reservation.lower_to(file_charge(file_bytes));
        fsync(&self.file).map_err(|errno| {
            EngineError::from(self.store.inner.incoming.error("fsync", &self.temporary.name, errno))
        })?;
        let Self { store, key, temporary, reservation, .. } = self;
        Ok(SealedUpload { store, key, temporary, reservation, facts })
    }

    fn failed(&self, operation: &'static str, error: &std::io::Error) -> EngineError {
        let name = &self.temporary.name;
        self.store.inner.incoming.error(operation, name, errno_of(error)).into()
    }
}

impl SealedUpload {
    /// The SHA-256 of the bytes, 64 hexadecimal digits.
    pub fn sha256(&self) -> &str {
        &self.facts.sha256
    }

    /// The media type.
    pub fn mime_type(&self) -> &str {
        &self.facts.mime_type
    }

    /// Makes it the next version. When this returns, it is on the disk.
    ///
    /// # Errors
    /// The store cannot be written. There is no new version then.
    pub fn publish(self) -> Result<SavedVersion, EngineError> {
        let Self { store, key, temporary, reservation, facts } = self;
        let version = store.inner.publish(&key, &temporary.name, reservation)?;
        let name = key.name().to_owned();
        let r#ref = format!("artifact://{name}@{version}");
        let VersionFacts { sha256, size_bytes, .. } = facts;
        Ok(SavedVersion { name, version, r#ref, sha256, size_bytes })
    }
}
