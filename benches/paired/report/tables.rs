//! Tables below the rows.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// How a cost grows.
pub struct Table {
    pub key: &'static str,
    pub title: &'static str,
    pub columns: &'static [&'static str],
    pub rows: Vec<Vec<f64>>,
}

/// A table of words and figures.
pub struct Words {
    pub key: &'static str,
    pub title: &'static str,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

#[derive(Clone)]
pub enum Cell {
    Figure(f64),
    Word(String),
}

impl From<Table> for Words {
    fn from(Table { key, title, columns, rows }: Table) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let figures = |row: Vec<f64>| row.into_iter().map(Cell::Figure).collect();
        Self { key, title, columns, rows: rows.into_iter().map(figures).collect() }
    }
}

impl Words {
    pub fn json(&self) -> Value {
        let named = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row);
            let cells = cells.map(|(column, cell)| (column.clone(), cell.json()));
            Value::Object(cells.collect::<Map<_, _>>())
        };
        self.rows.iter().map(named).collect()
    }

    pub fn markdown(&self) -> String {
        let mut text = format!("| {} |\n", self.columns.join(" | "));
        text += &format!("|{}\n", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(Cell::shown).collect();
            writeln!(text, "| {} |", cells.join(" | ")).unwrap();
        }
        text
    }
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Self::Figure(value) => json!(value),
            Self::Word(word) => json!(word),
        }
    }

    /// Whole and large numbers without decimals, others with two.
    fn shown(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Figure(value) => {
                let decimals = if value.fract() == 0.0 || value.abs() >= 100.0 { 0 } else { 2 };
                format!("{value:.decimals$}")
            }
        }
    }
}
