//! The rows, by group.

mod files;
mod kernel;
mod processes;
mod resources;
mod service;

use super::Row;

/// Every row, in order.
pub fn all() -> impl Iterator<Item = Row> {
    let groups = [files::ROWS, processes::ROWS, resources::ROWS, kernel::ROWS, service::ROWS];
    groups.into_iter().flatten().copied()
}
