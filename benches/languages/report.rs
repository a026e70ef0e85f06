//! The tables, on the terminal and in `target/bench/languages.md`, and every time in `languages.json`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::goals::{Burst, goal};
use crate::machine::Machine;
use crate::posts::Bursts;
use crate::times::{Round, Times};

/// What one language took.
pub struct Measured {
    pub slug: String,
    pub version: String,
    /// Whether its workspace has a target `prestart`.
    pub has_target: bool,
    pub times: Times,
    pub burst: Burst,
    /// `None` without runtimes started ahead.
    pub bursts: Option<Bursts>,
}

/// A table of one row for each language that has one.
struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    row: fn(&Measured) -> Option<Vec<String>>,
}

const TABLES: &[Table] = &[
    Table {
        title: "Runs of languages and bare `make test`",
        columns: &[
            "language",
            "bare, ms",
            "cold, ms",
            "ahead, ms",
            "cold ÷ bare",
            "ahead ÷ bare",
            "goal",
            "",
            "ahead in",
        ],
        row: ratios,
    },
    Table {
        title: "Runtimes started ahead, and bursts of runs",
        columns: &[
            "language",
            "MiB each",
            "ready again, s",
            "runs at once",
            "of these ahead",
            "median, ms",
            "slowest, ms",
        ],
        row: bursts,
    },
    Table {
        title: "Cost of a check",
        columns: &["language", "version", "first, ms", "CPU, ms", "peak MiB"],
        row: costs,
    },
];

impl Measured {
    /// The median of the rounds that used a runtime, as a share of a bare `make test`.
    fn ahead_ratio(&self) -> Option<f64> {
        let ahead = self.times.rounds.iter();
        median(ahead.filter_map(|round| Some(round.ahead_ms? / round.bare_ms)))
    }

    /// Whether the goal is met, if there is one. Without a runtime started ahead it is missed.
    pub fn is_met(&self) -> Option<bool> {
        let ratio = self.ahead_ratio();
        goal(&self.slug).map(|at_most| ratio.is_some_and(|ratio| ratio <= at_most))
    }

    fn median(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        median(self.times.rounds.iter().filter_map(figure))
    }

    fn header(&self, name: &str) -> Option<f64> {
        self.median(|round| round.cold.header(name)?.parse().ok())
    }
}

fn ratios(measured: &Measured) -> Option<Vec<String>> {
    let rounds = &measured.times.rounds;
    let ahead = rounds.iter().filter(|round| round.ahead_ms.is_some()).count();
    let of_rounds = format!("{ahead} of {}", rounds.len());
    let verdict = measured.is_met().map_or("", |is_met| if is_met { "met" } else { "missed" });
    Some(vec![
        measured.slug.clone(),
        shown(measured.median(|round| Some(round.bare_ms)), 1),
        shown(measured.median(|round| Some(round.cold_ms)), 1),
        shown(measured.median(|round| round.ahead_ms), 1),
        shown(measured.median(|round| Some(round.cold_ms / round.bare_ms)), 2),
        shown(measured.ahead_ratio(), 2),
        goal(&measured.slug).map_or_else(String::new, |at_most| format!("≤ {at_most}")),
        verdict.to_owned(),
        if measured.has_target { of_rounds } else { "no target".to_owned() },
    ])
}

fn bursts(measured: &Measured) -> Option<Vec<String>> {
    let Bursts { bytes_each, used, taken_ms } = measured.bursts.as_ref()?;
    #[allow(clippy::cast_precision_loss, reason = "a few runtimes")]
    let used = median(used.iter().map(|used| *used as f64));
    Some(vec![
        measured.slug.clone(),
        shown(Some(bytes_each / f64::from(1 << 20)), 1),
        shown(measured.median(|round| Some(round.ahead_ms.and(round.again)?.as_secs_f64())), 2),
        measured.burst.runs.to_string(),
        shown(used, 0),
        shown(median(taken_ms.iter().copied()), 0),
        shown(taken_ms.iter().copied().reduce(f64::max), 0),
    ])
}

fn costs(measured: &Measured) -> Option<Vec<String>> {
    let peak = measured.header("x-run-memory-peak-bytes");
    Some(vec![
        measured.slug.clone(),
        measured.version.clone(),
        shown(Some(measured.times.first_ms), 0),
        shown(measured.header("x-run-cpu-ms"), 0),
        shown(peak.map(|bytes| bytes / f64::from(1 << 20)), 0),
    ])
}

/// Prints the tables, and writes them and all times.
pub fn write(machine: &Machine, rounds: usize, measured: &[Measured], directory: &Path) {
    let text = markdown(machine, rounds, measured);
    println!("\n{text}");
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("languages.md"), text).unwrap();
    let languages: Vec<Value> = measured.iter().map(measured_json).collect();
    let all = json!({ "machine": machine.json(), "rounds": rounds, "languages": languages });
    fs::write(directory.join("languages.json"), format!("{all:#}\n")).unwrap();
    println!("written in {}", directory.display());
}

fn markdown(machine: &Machine, rounds: usize, measured: &[Measured]) -> String {
    let mut text = format!("Taken {machine}; medians of {rounds} rounds.\n");
    for Table { title, columns, row } in TABLES {
        let rows: Vec<Vec<String>> = measured.iter().filter_map(row).collect();
        if rows.is_empty() {
            continue;
        }
        write!(text, "\n### {title}\n\n| {} |\n", columns.join(" | ")).unwrap();
        writeln!(text, "|{}", "---|".repeat(columns.len())).unwrap();
        for row in rows {
            writeln!(text, "| {} |", row.join(" | ")).unwrap();
        }
    }
    text
}

fn measured_json(measured: &Measured) -> Value {
    let round = |round: &Round| {
        json!({
            "bare_ms": round.bare_ms,
            "cold_ms": round.cold_ms,
            "ahead_ms": round.ahead_ms,
            "ready_again_s": round.again.map(|again| again.as_secs_f64()),
        })
    };
    let bursts = measured.bursts.as_ref().map(|bursts| {
        json!({
            "runs": measured.burst.runs,
            "bytes_each": bursts.bytes_each,
            "used": bursts.used,
            "ms": bursts.taken_ms,
        })
    });
    json!({
        "language": measured.slug,
        "version": measured.version,
        "goal": goal(&measured.slug),
        "met": measured.is_met(),
        "ratio": measured.ahead_ratio(),
        "first_ms": measured.times.first_ms,
        "rounds": measured.times.rounds.iter().map(round).collect::<Vec<Value>>(),
        "bursts": bursts,
    })
}

/// A figure with so many decimals, or a dash where nothing was measured.
fn shown(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (below, above) =
        (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*below, *above))
}
