//! Hostile tenants and clients, one row an attack, against any service with this contract.
//!
//! By itself it starts the binary (`COFFERDAM_BIN`) and looks at the host after every row.
//! `HOSTILE_URL` points it at a running service instead; what needs a look at the host is then
//! not exercised. `HOSTILE_WITHOUT` takes one wall of a weakened build down and holds the rows
//! of `weakened.toml` to breaking. Arguments are ids of rows to run, or a group's letter.

// A program without the usual harness is no test to clippy.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed expectation is a broken row"
)]

mod aftermath;
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

/// Why a row could not be tried here.
#[derive(Debug)]
pub struct Unexercised(pub String);

/// One attack and what must hold.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The group's letter and a number.
    pub id: &'static str,
    /// What holds, in one sentence.
    pub guarantee: &'static str,
    /// Attacks; panics where the guarantee does not hold.
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
