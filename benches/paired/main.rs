//! Compares Cofferdam with bare processes and other sandboxes, in alternation on this machine.
//!
//! Absolute times drift on shared machines, so a figure is the median over pairs of the ratio or
//! difference of two alternating measurements. `PAIRS=200` takes more pairs, `FAMILIES="exec idle"`
//! selects rows; `BENCH_STRICT=1` fails if a goal is missed. Writes the figures to `target/bench`.
//! docs/performance.md describes the method.

#![allow(
    clippy::cast_precision_loss,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench fails loudly, prints, and counts little"
)]

mod bare;
mod families;
mod goals;
mod isolation;
mod machine;
mod peers;
mod plot;
mod report;
mod row;
mod runner;
mod stats;

use std::process::ExitCode;

use cofferdam_test_server::shipped::repository;
use families::FAMILIES;
use machine::Machine;
use report::Report;

const PAIRS_DEFAULT: usize = 50;

fn main() -> ExitCode {
    let pairs = std::env::var("PAIRS").map_or(PAIRS_DEFAULT, |pairs| pairs.parse().unwrap());
    assert!(pairs > 0, "PAIRS must be at least 1");
    let mut report = Report::new(pairs, Machine::this());
    for family in asked() {
        family(&mut report);
    }
    report.write(&repository().join("target/bench"));
    let missed = report.missed();
    println!("{} goals missed", missed.len());
    let is_strict = std::env::var("BENCH_STRICT").is_ok_and(|strict| strict == "1");
    if is_strict && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The families to run, by default all.
fn asked() -> Vec<fn(&mut Report)> {
    let names = std::env::var("FAMILIES").unwrap_or_default();
    let names: Vec<&str> = names.split_whitespace().collect();
    for name in &names {
        assert!(FAMILIES.iter().any(|(known, _)| known == name), "no family {name}");
    }
    let is_asked = |name: &str| names.is_empty() || names.contains(&name);
    FAMILIES.iter().filter(|(name, _)| is_asked(name)).map(|(_, family)| *family).collect()
}
