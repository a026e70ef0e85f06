//! Runs with scripted Cells.

mod fixtures;
mod killed;
mod reports;
mod schedule;
mod stored;
