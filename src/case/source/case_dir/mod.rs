//! The directory of a Case as provisioning and setup see it: a copy without what graders, the oracle and harnesses name.

mod copy;
mod error;
mod listing;
mod shown;

pub use copy::copy_case_dir;
pub use error::{CaseDirError, CaseDirLimits};
pub use listing::{CaseListing, ListedEntry, ListedKind};
pub use shown::{hidden_names, shown_paths};
