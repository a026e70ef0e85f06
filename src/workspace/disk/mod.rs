//! The directory in which the engine keeps what lasts, and how much it may hold.

mod engine_dir;
pub mod saved;
mod skills;
mod store_quota;

pub use engine_dir::{EngineDir, LazyEngineDir};
pub use skills::{SkillStore, StoredSkill};
pub use store_quota::{DIRECTORY_CHARGE, StoreQuota, StoreReservation, file_charge};
