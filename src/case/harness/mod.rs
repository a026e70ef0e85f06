//! Harnesses: what lets an agent work in a Cell, and how that ended.

mod beside;
mod call;
mod chosen;
mod command;
mod denials;
mod end;
mod job;
mod network;
mod nop;
mod openai;
mod oracle;
mod patch;
mod trace;

pub use call::{Harness, HarnessCall, HarnessPrompt, InstructionText};
pub use chosen::{ChosenHarness, HarnessSetup};
pub use command::CommandHarness;
pub use denials::{CaseDenial, HttpCaseRules, http_denials};
pub use end::{AgentSummary, AgentTokens, HarnessEnd, HarnessError, HarnessFault};
pub use job::{CellJobs, InlineJob, InlineJobs, JobHarness};
pub use network::{AgentReach, HarnessTerms};
pub use nop::{NopHarness, UndefinedAgent};
pub use openai::{ModelPrices, OpenaiHarness, OpenaiSettings};
pub use oracle::OracleCommands;
pub use patch::PatchHarness;
pub use trace::{HarnessTrace, TRACE_BYTES_MAX};
