//! The rows that must break with one wall removed, which proves that they can fail.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::{Row, rows};

/// A wall that is removed.
#[derive(Debug)]
pub struct Wall {
    /// Its name for the binary and in `weakened.toml`.
    pub name: String,
    breaks: Vec<String>,
    all_rows: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Breaks {
    breaks: Vec<String>,
}

impl Wall {
    /// The wall that `HOSTILE_WITHOUT` names, if it is set.
    pub fn from_env() -> Option<Self> {
        let name = std::env::var("HOSTILE_WITHOUT").ok().filter(|name| !name.is_empty())?;
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/weakened.toml");
        let text = fs::read_to_string(file).unwrap();
        let mut walls: BTreeMap<String, Breaks> = toml::from_str(&text).unwrap();
        assert_all_are_proven(&walls);
        let Breaks { breaks } = walls.remove(&name).expect("a wall of weakened.toml");
        assert!(!breaks.is_empty(), "nothing is expected to break");
        Some(Self { name, breaks, all_rows: std::env::var_os("HOSTILE_ALL").is_some() })
    }

    /// Whether the row is worth running without this wall.
    pub fn is_asked_about(&self, row: &Row) -> bool {
        self.all_rows || self.must_break(row.id)
    }

    /// Whether the row cannot hold without this wall.
    pub fn must_break(&self, id: &str) -> bool {
        self.breaks.iter().any(|broken| broken == id)
    }

    /// The rows that cannot hold without this wall.
    pub fn breaks(&self) -> &[String] {
        &self.breaks
    }
}

/// Panics if there is no wall without which a row of the engine, or of runtimes started ahead, must break.
fn assert_all_are_proven(walls: &BTreeMap<String, Breaks>) {
    let is_proven = |id: &str| walls.values().any(|wall| wall.breaks.iter().any(|row| row == id));
    let needs_proof = |id: &&str| id.starts_with(['P', 'W']);
    let unproven: Vec<&str> =
        rows::all().map(|row| row.id).filter(needs_proof).filter(|id| !is_proven(id)).collect();
    assert!(unproven.is_empty(), "no wall proves {unproven:?}");
}
