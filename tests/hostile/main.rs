//! Attacks by hostile tenants and clients, one per row, against any service with this contract.
//!
//! By default it starts the binary (`COFFERDAM_BIN`) and checks the host after every row.
//! `HOSTILE_URL` points it at a running service instead; rows that check the host are then not
//! exercised. `HOSTILE_WITHOUT` removes one wall of a weakened build and requires the rows of
//! `weakened.toml` to break. Arguments select rows by id or group letter.

// Clippy does not treat a program without the standard harness as a test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed expectation is a broken row"
)]

mod aftermath;
mod engine;
mod exec;
mod marker;
mod observe;
mod probe;
mod punctual;
mod rows;
mod scorecard;
mod target;
mod weakened;

use std::process::ExitCode;

use scorecard::Scorecard;
use target::Target;
use weakened::Wall;

/// Why a row cannot be exercised here.
#[derive(Debug)]
pub struct Unexercised(pub String);

/// One attack and the guarantee it tests.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The group's letter and a number.
    pub id: &'static str,
    /// The guarantee, in one sentence.
    pub guarantee: &'static str,
    /// Attacks; panics if the guarantee does not hold.
    pub attack: fn(&Target) -> Result<(), Unexercised>,
}

fn main() -> ExitCode {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wall = Wall::from_env();
    let rows: Vec<Row> = rows::all()
        .filter(|row| wanted.is_empty() || wanted.iter().any(|wanted| is_meant(row, wanted)))
        .filter(|row| wall.as_ref().is_none_or(|wall| wall.is_asked_about(row)))
        .collect();
    let mut target = Target::from_env(wall.as_ref());
    let mut scorecard = Scorecard::default();
    for row in rows {
        scorecard.score(row, &mut target);
    }
    drop(target);
    scorecard.print();
    if scorecard.is_as_it_should_be(wall.as_ref()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `A3` means one row, `A` its group.
fn is_meant(row: &Row, wanted: &str) -> bool {
    row.id == wanted || (wanted.len() == 1 && row.id.starts_with(wanted))
}
