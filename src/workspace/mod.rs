//! Directories a run works in: looking at, filling and writing into them; never processes.
//!
//! Every access is relative to a directory descriptor and resolved one name at a time without
//! links, so nothing a tenant left in a tree leads out of it. A tree is only ever walked with a
//! loop (`walk`): its depth costs memory in the heap, neither stack nor descriptors.

mod beneath;
mod budget;
mod copy;
mod descent;
mod error;
mod owner;
mod put;
mod status;
mod template;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod walk;

pub use budget::TreeLimits;
pub use copy::copy_tree;
pub use error::WorkspaceError;
pub use owner::Owner;
pub use put::{put, put_over_template};
pub use template::{Fill, Owners, Template};
