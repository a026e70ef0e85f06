//! The languages: what a slug means, what a request writes, what its workspace runs.

mod layout;
mod make_process;
mod makefile;
mod resolver;
mod table;

pub use layout::{FileToWrite, files_for};
pub use resolver::Resolver;
pub use table::{Language, LanguageTable};
