//! Kernels: interpreters that run one piece of code after the other and keep its state.

mod answer;
mod scanner;
mod source;
#[cfg(test)]
mod tests;

pub use answer::{CodeFault, CodeResult, KernelAnswer};
pub use scanner::AnswerScanner;
pub use source::{KernelLanguage, first_line, request_line};
