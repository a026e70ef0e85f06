//! Tasks of other formats as tasks of ours.

mod dockerfile;
mod harbor;
mod output;
mod swebench;

pub use self::harbor::convert_harbor;
pub use self::swebench::{SwebenchOptions, convert_swebench};
