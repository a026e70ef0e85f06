//! One run of a program: what to run, its limits, and its report.

pub(crate) mod captured;
pub(crate) mod enforced;
pub(crate) mod figures;
pub(crate) mod limits;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod report;
pub(crate) mod run_spec;
