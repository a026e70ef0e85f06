//! Blocks in contexts: what the answers and the ends of kernels mean.

use std::time::Duration;

use super::answer::{BlockEnd, BlockStatus};
use super::calls::{CallEnd, Interruption};
use super::context::CodeContext;
use super::results::judge;
use crate::workspace::kernels::{CodeFault, KernelAnswer};
use crate::workspace::run::texts;
use crate::workspace::service::live::LiveWorkspace;
use cofferdam_core::LimitKind;

/// A block that a context has executed.
#[derive(Debug)]
pub struct ExecutedBlock<'a> {
    /// The workspace.
    pub live: &'a LiveWorkspace,
    /// The context.
    pub context: &'a CodeContext,
    /// The number of the block in the context.
    pub number: Option<u64>,
    /// How long it took.
    pub duration: Duration,
    /// Whether a state was lost before it.
    pub state_lost: bool,
}

impl ExecutedBlock<'_> {
    /// How the block ended.
    pub fn end(self, call: CallEnd) -> BlockEnd {
        let CallEnd { result, printed, interrupted } = call;
        let (encoding, [stdout, stderr]) = texts([&printed.stdout, &printed.stderr]);
        let text = printed.stdout.text().into_owned() + &printed.stderr.text();
        let time_limit =
            (interrupted == Some(Interruption::Time)).then(|| LimitKind::WallTime.word());
        let mut end = BlockEnd {
            stdout,
            stderr,
            encoding,
            text,
            duration: self.duration,
            limit: time_limit,
            context_id: Some(self.context.id.clone()),
            execution_count: self.number,
            state_lost: self.state_lost,
            ..BlockEnd::of(BlockStatus::Killed)
        };
        match result {
            Ok(KernelAnswer { results, error }) => {
                end.status = match (interrupted, &error) {
                    (Some(Interruption::Time), _) => BlockStatus::TimedOut,
                    (_, Some(_)) => BlockStatus::Error,
                    (_, None) => BlockStatus::Ok,
                };
                end.failure = match (end.status, &error) {
                    (BlockStatus::Ok, _) => None,
                    (_, Some(fault)) => Some(words(fault)),
                    (_, None) => Some("its time was over\n".to_owned()),
                };
                end.results = judge(self.live, results);
                end.error = error;
            }
            Err(kernel) => {
                end.limit = kernel.limit.or(end.limit);
                end.exit_code = Some(kernel.exit_code);
                end.state_lost = true;
                end.failure =
                    Some(format!("the context was killed: exit status {}\n", kernel.exit_code));
            }
        }
        end
    }
}

/// The trace of a fault as lines.
fn words(fault: &CodeFault) -> String {
    let trace = fault.traceback.trim_end();
    if trace.is_empty() {
        return format!("{}: {}\n", fault.name, fault.value);
    }
    format!("{trace}\n")
}
