//! The harness of kind `openai`: a model works by chat completions, and the supervisor does what it asks for in the
//! Cell. The loop, the key and the requests stay here; only the tools' effects reach the Cell.

mod access;
mod answer;
mod client;
mod conversation;
mod key;
mod settings;
mod text;
mod tool_run;
mod tools;
mod wire;
mod work;

pub use settings::{ModelPrices, OpenaiSettings};
pub use work::OpenaiHarness;
