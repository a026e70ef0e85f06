//! The graders `pytest` and `swebench`: tests that run in the same process as the tested code.
//!
//! [`PytestTask`] says what to run. [`run_pytest`] runs our runner (`runner/`) in the Cell and reads what it reports
//! into a [`RunnerReport`]. [`grade_pytest`] and [`grade_swebench`] grade that. Nothing that tests print, no file and
//! no exit code counts.

mod channel;
mod counts;
mod ids;
mod prefix;
mod report;
mod run;
mod swebench;
mod task;

pub use channel::TestEnd;
pub use counts::{PytestGrade, PytestWanted, grade_pytest};
pub use report::{RanTest, RanTests, RunnerReport};
pub use run::{PytestRun, run_pytest};
pub use swebench::{SwebenchGrades, grade_swebench};
pub use task::PytestTask;
