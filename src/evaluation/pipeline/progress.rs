//! Who is told how far an evaluation is.

use crate::evaluation::result::{EvaluationResult, EvaluationStep, TestResult};
use cofferdam_core::egress::EgressRecord;

/// Is told how far an evaluation is. No method may block for long.
pub trait EvaluationObserver: Sync {
    /// A step begins.
    fn step(&self, step: EvaluationStep);
    /// A test has ended.
    fn test(&self, result: &TestResult);
    /// A program wrote `text`; `name` is that of the test, if it is one. Secrets are redacted.
    fn output(&self, _step: EvaluationStep, _name: Option<&str>, _text: &str) {}
    /// A sandbox asked for a host.
    fn egress(&self, _record: &EgressRecord) {}
    /// What is known at the beginning of a step.
    fn snapshot(&self, _result: &EvaluationResult) {}
}
