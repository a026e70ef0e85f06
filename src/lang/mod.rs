//! The languages: what a slug means, what a request writes, what its workspace runs.

pub mod layout;
pub mod make_process;
pub mod makefile;
pub mod resolver;
pub mod table;

pub use layout::{FileToWrite, LayoutError, files_for};
pub use makefile::ResolveError;
pub use resolver::Resolver;
pub use table::{Language, LanguageTable, TableError};
