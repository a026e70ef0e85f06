//! Grading: what the files that an agent left are worth.
//!
//! A [`Grader`] runs in a fresh Cell that holds the source and the agent's difference, and returns scores;
//! [`combine`] makes one result of them. What tests print and write comes from code that the agent may have
//! written: the parsers in `counts` and `junit` are pure and bounded.

mod built_in;
mod counted;
mod counts;
mod files;
mod grader;
mod junit;
pub mod pytest;
mod python;
mod score;

pub use built_in::{StepRun, TestVerdict, built_in_grader, run_shell, test_verdict};
pub use counted::CountedTests;
pub use counts::console_counts;
pub use files::{
    FoundFile, HiddenFiles, ReadReports, ReportPatterns, find_files, inject_files, read_reports,
    remove_reports, restored_patterns,
};
pub use grader::{GradeError, GradeInputs, Grader};
pub use junit::{JunitTally, UnusableReport};
pub use python::python_grader;
pub use score::{GraderScore, GraderWeight, Overall, combine};
