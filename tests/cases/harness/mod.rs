//! Harnesses in Cells: agents with a command line, patches, and a model that works by chat completions.

mod command;
pub mod endpoint;
mod openai;
mod patch;
mod stage;
