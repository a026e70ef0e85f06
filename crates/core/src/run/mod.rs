//! One run of a program: what to run, its limits, and its report.

pub(crate) mod egress;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod mounted;
pub(crate) mod outcome;
pub(crate) mod output;
pub(crate) mod report;
pub(crate) mod run_spec;
