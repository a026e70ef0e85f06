//! The result of a command, of what the process above it replied.

use nix::errno::Errno;

use super::message::{EndedStep, StepReply};
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::{ExecCode, ExecError};
use crate::case::cell::request::ExecRequest;
use crate::case::cell::result::{ExecResult, StepControls, StepUsage};
use cofferdam_core::Outcome;

/// The result of `request`, or why nothing has run. `outcome` is how a program ended that did run.
pub(super) fn result(
    request: &ExecRequest,
    reply: StepReply,
    outcome: impl FnOnce(EndedStep) -> Outcome,
    output: &StepOutput,
    controls: StepControls,
) -> Result<ExecResult, ExecError> {
    let ended = match reply {
        StepReply::BadCwd { errno } => {
            let words = format!("cwd: {}", Errno::from_raw(errno));
            return Err(ExecError::new(ExecCode::InvalidCwd, words));
        }
        StepReply::NotExecuted { errno: libc::E2BIG } => {
            return Err(ExecError::new(ExecCode::InvalidArgv, "argv and env are too long"));
        }
        StepReply::NotExecuted { errno } => {
            return Ok(ExecResult::not_executed(request, errno, controls));
        }
        StepReply::Failed { step, errno } => {
            return Err(ExecError::failed("helper", format!("{step}: {}", Errno::from_raw(errno))));
        }
        StepReply::Ended(ended) => ended,
    };
    let usage = StepUsage {
        wall_ms: Some(ended.wall_ms),
        cpu_ms: Some(ended.cpu_ms),
        memory_peak_bytes: Some(ended.memory_peak_bytes),
    };
    Ok(ExecResult::of(request, outcome(ended), output.take(), usage, controls))
}
