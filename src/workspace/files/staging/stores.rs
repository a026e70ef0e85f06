//! Where inputs come from and outputs go to, besides the workspace.

use std::sync::Arc;

use crate::workspace::artifacts::LazyArtifacts;
use crate::workspace::disk::{SkillStore, StoredSkill};
use crate::workspace::error::{EngineCode, EngineError};
use cofferdam_tree::files::{ArchiveLimits, HostRoots, Spool};

/// The most files and directories of a stored skill.
const SKILL_ENTRIES_MAX: u64 = 65_536;

/// Where inputs come from and outputs go to, besides the workspace. What is absent has nothing.
#[derive(Debug, Default)]
pub struct EngineStores {
    /// The artifacts.
    pub artifacts: Option<Arc<LazyArtifacts>>,
    /// The skills.
    pub skills: Option<SkillStore>,
    /// The directories of the host that inputs may be in.
    pub host_roots: HostRoots,
}

impl EngineStores {
    /// The artifacts.
    ///
    /// # Errors
    /// There are none.
    pub fn artifacts(&self) -> Result<&LazyArtifacts, EngineError> {
        self.artifacts.as_deref().ok_or_else(|| {
            EngineError::new(EngineCode::ArtifactNotFound, "the engine has no artifacts")
        })
    }

    /// The archive of the skill with this digest.
    ///
    /// # Errors
    /// No skill has this digest.
    pub fn skill(&self, digest: &str) -> Result<Spool, EngineError> {
        self.skills()?.open(digest)
    }

    /// Stores the archive that `source` gives as a skill, if its files have this digest and no more than
    /// `bytes_max` bytes.
    ///
    /// # Errors
    /// As [`SkillStore::save`].
    pub fn save_skill(
        &self,
        digest: &str,
        source: &mut dyn std::io::Read,
        bytes_max: u64,
    ) -> Result<StoredSkill, EngineError> {
        let entries_max = SKILL_ENTRIES_MAX;
        let limits = ArchiveLimits { entries_max, bytes_max, ..ArchiveLimits::default() };
        self.skills()?.save(digest, source, limits)
    }

    fn skills(&self) -> Result<&SkillStore, EngineError> {
        let missing = || EngineError::new(EngineCode::SkillNotFound, "the engine has no skills");
        self.skills.as_ref().ok_or_else(missing)
    }
}
