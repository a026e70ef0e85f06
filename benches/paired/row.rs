//! What a row of the benchmark is.
//!
//! A row compares A with B as its name states: `A ÷ B` is a ratio, `A − B` a difference, and a row
//! with one name reports A.

/// A goal for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// The unit of A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Milliseconds,
    RunsPerSecond,
    Mebibytes,
    Megabytes,
    Kibibytes,
    MegabytesPerSecond,
}

/// How the figure relates to A and B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// A ÷ B.
    Ratio,
    /// In the unit of A and B.
    Amount,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    pub key: &'static str,
    /// The name in the document.
    pub name: &'static str,
    pub unit: Unit,
    pub figure: Figure,
    pub goal: Option<Goal>,
}

pub const fn ratio(key: &'static str, name: &'static str, goal: Option<Goal>) -> Row {
    Row { key, name, unit: Unit::Milliseconds, figure: Figure::Ratio, goal }
}

pub const fn millis(key: &'static str, name: &'static str, goal: Option<Goal>) -> Row {
    Row { key, name, unit: Unit::Milliseconds, figure: Figure::Amount, goal }
}

pub const fn amount(key: &'static str, name: &'static str, unit: Unit, at_most: f64) -> Row {
    Row { key, name, unit, figure: Figure::Amount, goal: Some(Goal::AtMost(at_most)) }
}

pub const fn speed(key: &'static str, name: &'static str, at_least: f64) -> Row {
    let (unit, figure) = (Unit::MegabytesPerSecond, Figure::Ratio);
    Row { key, name, unit, figure, goal: Some(Goal::AtLeast(at_least)) }
}
