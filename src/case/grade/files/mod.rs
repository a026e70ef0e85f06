//! Files of grading: hidden ones that are put into a Cell, and those that tests left there.

mod hidden;
mod inject;
mod reports;
mod restored;
mod walk;

pub use hidden::HiddenFiles;
pub use inject::inject_files;
pub(super) use reports::is_about_file;
pub use reports::{ReadReports, ReportPatterns, read_reports, remove_reports};
pub use restored::restored_patterns;
pub use walk::{FoundFile, find_files};
