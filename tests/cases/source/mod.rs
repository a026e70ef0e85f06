//! Sources, fixtures and setup, through the types of the library.

mod copies;
mod repositories;
pub mod scene;
mod setup;
mod worktrees;
