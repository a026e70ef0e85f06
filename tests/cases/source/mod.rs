//! Sources, fixtures and setup, through the types of the library.

mod copies;
mod repositories;
mod scene;
mod setup;
