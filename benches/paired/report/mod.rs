//! The report: one line on the terminal per row, and at the end JSON, Markdown and a plot.

mod tables;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::goals;
use crate::machine::Machine;
use crate::plot::{self, Series};
use crate::row::{Figure, Goal, Row, Unit};
use crate::stats::{Pairs, Spread};
pub use tables::{Cell, Table, Words};

/// All measurements so far.
pub struct Report {
    pub pairs: usize,
    machine: Machine,
    rows: Vec<Measured>,
    left_out: Vec<(String, String)>,
    failed: Vec<(&'static str, String)>,
    tables: Vec<Words>,
    plotted: Vec<Series>,
}

/// A row with its figures.
struct Measured {
    place: usize,
    row: &'static Row,
    a: f64,
    b: f64,
    value: Spread,
}

impl Measured {
    fn is_met(&self) -> Option<bool> {
        self.row.goal.map(|goal| goal.is_met_by(self.value.median))
    }
}

impl Report {
    pub fn new(pairs: usize, machine: Machine) -> Self {
        println!("{machine}; medians of {pairs} pairs\n");
        println!("{:>10} {:>10} {:>9} {:>8}", "A", "B", "figure", "goal");
        Self {
            pairs,
            machine,
            rows: Vec::new(),
            left_out: Vec::new(),
            failed: Vec::new(),
            tables: Vec::new(),
            plotted: Vec::new(),
        }
    }

    /// Adds a row whose figure follows from its pairs.
    pub fn paired(&mut self, key: &str, pairs: &Pairs) {
        let value = match goals::find(key).1.figure {
            Figure::Ratio => pairs.ratio(),
            Figure::Amount => pairs.difference(),
        };
        self.row(key, pairs.first(), pairs.second(), value);
    }

    /// Adds a row with a computed figure.
    pub fn row(&mut self, key: &str, a: f64, b: f64, value: Spread) {
        let (place, row) = goals::find(key);
        let measured = Measured { place, row, a, b, value };
        println!(
            "{a:>10.2} {b:>10.2} {:>9.2} {:>8} {:>6}  {}",
            value.median,
            row.goal.map_or_else(String::new, shown),
            mark(measured.is_met()),
            row.name
        );
        self.rows.push(measured);
    }

    /// Records a row that could not be measured.
    pub fn leave_out(&mut self, key: &str, why: &str) {
        let (_, row) = goals::find(key);
        println!("{:>48}  {}: {why}", "left out", row.name);
        self.left_out.push((row.name.to_owned(), why.to_owned()));
    }

    /// Records a row that misses its goal because the service refuses what it measures.
    pub fn fail(&mut self, key: &str, why: &str) {
        let (_, row) = goals::find(key);
        println!("{:>48}  {}: {why}", "missed", row.name);
        self.failed.push((row.name, why.to_owned()));
    }

    pub fn table(&mut self, table: Table) {
        self.words(table.into());
    }

    pub fn words(&mut self, table: Words) {
        println!("\n{}\n{}", table.title, table.markdown());
        self.tables.push(table);
    }

    pub fn plot(&mut self, plotted: Vec<Series>) {
        self.plotted = plotted;
    }

    /// The names of the rows that miss their goal.
    pub fn missed(&self) -> Vec<&'static str> {
        let missed = self.rows.iter().filter(|row| row.is_met() == Some(false));
        let failed = self.failed.iter().map(|(name, _)| *name);
        missed.map(|row| row.row.name).chain(failed).collect()
    }

    /// Writes `bench.json`, `bench.md` and, if its rows were measured, `latency.svg`.
    pub fn write(&mut self, directory: &Path) {
        self.rows.sort_by_key(|row| row.place);
        fs::create_dir_all(directory).unwrap();
        let put = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
        put("bench.json", &format!("{:#}\n", self.json()));
        put("bench.md", &self.markdown());
        if !self.plotted.is_empty() {
            put("latency.svg", &plot::latency(&self.plotted));
        }
        println!("\nwritten in {}", directory.display());
    }

    /// The names of the rows that were left out for each reason.
    fn left_out_by_reason(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
        for (name, why) in &self.left_out {
            reasons.entry(why).or_default().push(name);
        }
        reasons
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let left_out: Vec<Value> = self
            .left_out
            .iter()
            .map(|(name, why)| json!({ "name": name, "reason": why }))
            .collect();
        let tables: Map<String, Value> =
            self.tables.iter().map(|table| (table.key.to_owned(), table.json())).collect();
        let failed: Vec<Value> =
            self.failed.iter().map(|(name, why)| json!({ "name": name, "reason": why })).collect();
        json!({
            "failed": failed,
            "machine": self.machine.json(),
            "pairs": self.pairs,
            "rows": rows,
            "left_out": left_out,
            "tables": tables,
        })
    }

    fn markdown(&self) -> String {
        let mut text = format!("Taken {}; medians of {} pairs.\n\n", self.machine, self.pairs);
        text += "| A ÷ B, or A − B | A | B | figure | middle half | goal | |\n";
        text += "|---|---|---|---|---|---|---|\n";
        for measured in &self.rows {
            text += &row_markdown(measured);
        }
        for (why, names) in self.left_out_by_reason() {
            writeln!(text, "\nLeft out, because {why}: {}.", names.join("; ")).unwrap();
        }
        for (name, why) in &self.failed {
            writeln!(text, "\nMissed: {name}: {why}.").unwrap();
        }
        for table in &self.tables {
            write!(text, "\n### {}\n\n{}", table.title, table.markdown()).unwrap();
        }
        text
    }
}

fn shown(goal: Goal) -> String {
    match goal {
        Goal::AtMost(bound) => format!("≤ {bound}"),
        Goal::AtLeast(bound) => format!("≥ {bound}"),
    }
}

fn mark(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Milliseconds => "ms",
        Unit::RunsPerSecond => "/s",
        Unit::Mebibytes => "MiB",
        Unit::Megabytes => "MB",
        Unit::Kibibytes => "KiB",
        Unit::MegabytesPerSecond => "MB/s",
    }
}

fn row_markdown(measured: &Measured) -> String {
    let Measured { row, a, b, value, .. } = measured;
    let side = unit(row.unit);
    let of_value = if row.figure == Figure::Ratio { String::new() } else { format!(" {side}") };
    let goal = row.goal.map_or_else(String::new, |goal| shown(goal) + &of_value);
    format!(
        "| {} | {a:.2} {side} | {b:.2} {side} | {:.2}{of_value} | {:.2} to {:.2} | {goal} | {} |\n",
        row.name,
        value.median,
        value.lower_quartile,
        value.upper_quartile,
        mark(measured.is_met())
    )
}

fn row_json(measured: &Measured) -> Value {
    let Measured { row, a, b, value, .. } = measured;
    let goal = row.goal.map(|goal| match goal {
        Goal::AtMost(bound) => json!({ "at_most": bound }),
        Goal::AtLeast(bound) => json!({ "at_least": bound }),
    });
    json!({
        "key": row.key,
        "name": row.name,
        "unit": unit(row.unit),
        "a": a,
        "b": b,
        "figure": if row.figure == Figure::Ratio { "ratio" } else { "amount" },
        "value": value.median,
        "lower_quartile": value.lower_quartile,
        "upper_quartile": value.upper_quartile,
        "goal": goal,
        "met": measured.is_met(),
    })
}
