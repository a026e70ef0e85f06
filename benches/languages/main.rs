//! Measures every language cold, warm, and against a bare `make test` in the same root file system.
//!
//! `SANDBOX_ROOTFS` is the root of `make toolchains`; `PAIRS` the number of warm runs, which
//! alternate with bare ones and of which the median is reported; `LANGUAGES` selects languages.
//! Needs root. Prints the rows of the table in `docs/languages.md`.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench fails loudly, and prints"
)]

mod bare;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Instant;

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::{Service, cofferdam};
use cofferdam_test_server::shipped::{self, Language};
use cofferdam_test_server::vector::Vector;
use serde_json::Value;

use bare::BareRoot;

const PAIRS_DEFAULT: usize = 7;

fn main() {
    let rootfs = shipped::rootfs().expect("SANDBOX_ROOTFS names no root: make bench-langs");
    let pairs = std::env::var("PAIRS").map_or(PAIRS_DEFAULT, |pairs| pairs.parse().unwrap());
    let asked = std::env::var("LANGUAGES").unwrap_or_default();
    let service = shipped::setup().start();
    let versions = versions();
    let languages = shipped::available(&service);
    let bare = BareRoot::enter(&rootfs);
    println!(
        "median of {pairs} pairs; milliseconds of wall-clock time, and of CPU time where it is said"
    );
    println!("| slug | version | cold | warm | bare `make test` | warm ÷ bare | CPU | peak MiB |");
    println!("|---|---|---|---|---|---|---|---|");
    for (slug, language) in &languages {
        if asked.is_empty() || asked.split_whitespace().any(|name| name == slug) {
            let figures = Figures::measure(&service, &bare, slug, language, pairs);
            println!("| {slug} | {} {figures}", versions[slug]);
        }
    }
}

/// The medians of one language.
struct Figures {
    cold_ms: f64,
    warm_ms: f64,
    bare_ms: f64,
    ratio: f64,
    cpu_ms: f64,
    peak_mib: f64,
}

impl Figures {
    fn measure(
        service: &Service,
        bare: &BareRoot,
        slug: &str,
        language: &Language,
        pairs: usize,
    ) -> Self {
        let good = Vector::read(slug, "good");
        let workspace = bare.workspace(slug, language);
        // The page cache holds nothing of the toolchain.
        nix::unistd::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let (cold_ms, _) = posted(service, &good, slug, language);
        // One run first, so that the first pair is as warm as the others.
        bare.make_test(&workspace);
        let pairs: Vec<(f64, Answer, f64)> = (0..pairs)
            .map(|_| {
                let (warm_ms, answer) = posted(service, &good, slug, language);
                (warm_ms, answer, bare.make_test(&workspace))
            })
            .collect();
        let header = |answer: &Answer, name| answer.header(name).unwrap().parse::<f64>().unwrap();
        Self {
            cold_ms,
            warm_ms: median(pairs.iter().map(|(warm, _, _)| *warm)),
            bare_ms: median(pairs.iter().map(|(_, _, bare)| *bare)),
            ratio: median(pairs.iter().map(|(warm, _, bare)| warm / bare)),
            cpu_ms: median(pairs.iter().map(|(_, answer, _)| header(answer, "x-run-cpu-ms"))),
            peak_mib: median(
                pairs.iter().map(|(_, answer, _)| header(answer, "x-run-memory-peak-bytes")),
            ) / f64::from(1 << 20),
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cold_ms, warm_ms, bare_ms, ratio, cpu_ms, peak_mib } = self;
        write!(
            f,
            "| {cold_ms:.0} | {warm_ms:.0} | {bare_ms:.0} | {ratio:.2} | {cpu_ms:.0} | {peak_mib:.0} |"
        )
    }
}

/// Posts the good example, asserts the right answer, and returns how long that took.
fn posted(service: &Service, good: &Vector, slug: &str, language: &Language) -> (f64, Answer) {
    let began = Instant::now();
    let answer = good.run(service, slug, language).unwrap_or_else(|why| panic!("{slug}: {why}"));
    (began.elapsed().as_secs_f64() * 1_000.0, answer)
}

/// The version line of every available toolchain.
fn versions() -> BTreeMap<String, String> {
    let listed = Command::new(cofferdam())
        .args(["langs", "--json", "--langs", "langs", "--rootfs"])
        .arg(shipped::rootfs().unwrap())
        .current_dir(shipped::repository())
        .output()
        .unwrap();
    let languages: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let version = |language: &Value| language["toolchain"].as_str().map(str::to_owned);
    let named = languages
        .iter()
        .filter_map(|language| Some((language["slug"].as_str()?.to_owned(), version(language)?)));
    named.collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
