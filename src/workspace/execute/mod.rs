//! Executing code: blocks as programs, and blocks in contexts that keep their state.

mod answer;
mod blocks;
mod calls;
mod context;
mod kernel;
mod pool;
mod printed;
mod programs;
mod request;
mod results;
mod start;
pub(super) mod table;
mod turns;

pub(super) use answer::BlockEnd;
pub use answer::{BlockAnswer, BlockStatus, ExecutionAnswer, ResultView};
pub(super) use blocks::ExecutedBlock;
pub(super) use calls::{CallEnd, Interruption, WhenOver, wait};
pub(super) use context::ContextSettings;
pub use context::{CodeContext, ContextView};
pub(super) use kernel::RunningKernel;
pub(super) use pool::KernelPool;
pub(super) use printed::PrintedOutput;
pub(super) use programs::{BlockProgram, CallDirectory, unsupported};
pub(super) use request::ExecutionPlan;
pub use request::{ContextRequest, ExecuteRequest};
pub(super) use start::start;
pub use turns::{ContextTurn, no_context};
