//! Collects outputs by a specification, and saves them as artifacts.

mod collect;
mod name_template;
mod save;

pub use collect::{check_outputs, collect_output_files, collect_outputs};
