//! The languages: what a slug means, what a request writes, what its workspace runs.

mod layout;
mod make_process;
mod makefile;
#[cfg(any(test, fuzzing))]
pub mod makefile_property;
mod plain_command;
mod resolver;
mod shipped;
mod table;
mod version;

pub use layout::{FileToWrite, files_for};
pub use plain_command::plain_words;
pub use resolver::Resolver;
pub use shipped::unpack_into as unpack_workspaces_into;
pub use table::{AnyOf, Language, LanguageTable};
pub use version::Version;
