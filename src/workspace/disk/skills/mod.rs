//! Skills: directories that are stored once, by the digest of their files.
//!
//! ```text
//! <ENGINE_STORE_DIR>/skills/<digest>     the archive of the skill, as it was received
//! <ENGINE_STORE_DIR>/skills-incoming/    archives that are being received, and unpacked to be digested
//! ```
//!
//! An archive gets the name of its digest after its files have been unpacked and digested, so what has a name is
//! safe and whole.

mod incoming;
mod store;
pub(super) mod sweep;

pub use store::{SkillStore, StoredSkill};
