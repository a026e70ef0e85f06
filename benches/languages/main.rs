//! Measures every language: a bare `make test` in the same root file system, a run whose program begins at
//! the request, and one in a runtime started ahead, in alternation.
//!
//! `SANDBOX_ROOTFS` is the root of `make toolchains`; `PAIRS` the number of rounds, of which the median
//! is reported; `LANGUAGES` selects languages; `BENCH_STRICT=1` fails if a goal is missed. Needs root.
//! Writes the tables to `target/bench`. docs/performance.md describes the method.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench fails loudly, and prints"
)]

mod ahead;
mod bare;
mod goals;
#[path = "../paired/machine.rs"]
mod machine;
mod posts;
mod report;
mod times;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use cofferdam_test_server::service::{Service, cofferdam};
use cofferdam_test_server::shipped::{self, Language, repository};
use serde_json::Value;

use ahead::{Ahead, has_target};
use bare::BareRoot;
use goals::{LIGHT, SMALL, burst};
use machine::Machine;
use posts::{Bursts, Example};
use report::Measured;
use times::{Places, Times};

const ROUNDS_DEFAULT: usize = 7;
/// Bursts, unless fewer rounds are asked for.
const BURSTS_MAX: usize = 3;

fn main() -> ExitCode {
    let rootfs = shipped::rootfs().expect("SANDBOX_ROOTFS names no root: make bench-langs");
    let rounds = std::env::var("PAIRS").map_or(ROUNDS_DEFAULT, |pairs| pairs.parse().unwrap());
    assert!(rounds > 0, "PAIRS must be at least 1");
    let machine = Machine::this();
    // Started before the root is entered, so that their sandboxes see none of its mounts.
    let cold = shipped::setup().env("PRESTART", "off").start();
    let services = [LIGHT, SMALL].map(Ahead::start);
    let versions = versions();
    let languages = asked(&cold);
    let bare = BareRoot::enter(&rootfs);
    let measured: Vec<Measured> = languages
        .into_iter()
        .map(|(slug, language)| {
            let ahead = services.iter().find(|ahead| ahead.burst == burst(&slug)).unwrap();
            let workspace = bare.workspace(&slug, &language);
            let places = Places { cold: &cold, ahead, bare: &bare, workspace };
            measure(&places, &Example::of(&slug, &language), rounds, &versions[&slug])
        })
        .collect();
    report::write(&machine, rounds, &measured, &repository().join("target/bench"));
    let missed = measured.iter().filter(|measured| measured.is_met() == Some(false)).count();
    println!("{missed} goals missed");
    let is_strict = std::env::var("BENCH_STRICT").is_ok_and(|strict| strict == "1");
    if is_strict && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The languages to measure, by default all that are here.
fn asked(service: &Service) -> BTreeMap<String, Language> {
    let asked = std::env::var("LANGUAGES").unwrap_or_default();
    let mut languages = shipped::available(service);
    languages.retain(|slug, _| {
        asked.trim().is_empty() || asked.split_whitespace().any(|name| name == slug)
    });
    languages
}

fn measure(places: &Places<'_>, example: &Example, rounds: usize, version: &str) -> Measured {
    println!("{}", example.slug);
    let times = Times::take(places, example, rounds);
    let has_ahead = times.rounds.iter().any(|round| round.ahead_ms.is_some());
    let bursts = has_ahead.then(|| Bursts::take(places.ahead, example, rounds.min(BURSTS_MAX)));
    Measured {
        slug: example.slug.clone(),
        version: version.to_owned(),
        has_target: has_target(&example.slug),
        times,
        burst: places.ahead.burst,
        bursts: bursts.flatten(),
    }
}

/// The version line of every available toolchain.
fn versions() -> BTreeMap<String, String> {
    let listed = Command::new(cofferdam())
        .args(["langs", "--json", "--langs", "langs", "--rootfs"])
        .arg(shipped::rootfs().unwrap())
        .current_dir(repository())
        .output()
        .unwrap();
    let languages: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let version = |language: &Value| language["toolchain"].as_str().map(str::to_owned);
    let named = languages
        .iter()
        .filter_map(|language| Some((language["slug"].as_str()?.to_owned(), version(language)?)));
    named.collect()
}
