//! A task: the repository, what to do in it, and the tests that judge the result.

mod check;
mod convert;
mod description;
mod error;
mod fields;
mod grading;
mod harbor;
mod load;
mod model;
mod open;
mod read;
pub mod solution;

pub use self::check::{FindingLevel, TaskFinding, check_task};
pub use self::convert::{SwebenchOptions, convert_harbor, convert_swebench};
pub use self::error::TaskError;
pub use self::grading::{GradedId, Grading, JunitGrading, TestKind};
pub use self::model::{
    InstallFailure, Task, TaskBounds, TaskSource, TaskTest, TestRun, VerifyRules,
};
pub use self::open::{ArchiveBounds, OpenedTask, open_archive, open_directory};
