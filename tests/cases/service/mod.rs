//! Cases over HTTP, by the built binary.

mod archives;
mod denied;
mod ends;
mod models;
mod runs;
mod scene;
