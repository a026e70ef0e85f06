//! What is wrong with a case file.

use serde::Serialize;

/// A word for what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseCode {
    /// The key has no meaning.
    UnknownKey,
    /// A key that has to be there.
    Missing,
    /// A value of another type. Nothing is converted.
    WrongType,
    /// A value of the right type that is not allowed.
    InvalidValue,
    /// Two keys that exclude each other.
    Conflict,
    /// A path that leaves its directory.
    UnsafePath,
    /// A file or a harness that does not exist.
    NotFound,
    /// The file is not YAML.
    Syntax,
    /// A key that is there twice.
    DuplicateKey,
    /// The file is beyond a limit.
    TooLarge,
    /// A warning: the block does nothing.
    Inert,
    /// A warning: the key does nothing here.
    NoEffect,
    /// A warning: graders of this type are skipped.
    UnsupportedGrader,
    /// A warning: the tests are counted by what is printed.
    ConsoleCounts,
}

/// An error or a warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseFinding {
    /// The key, such as `graders[1].cmd`; empty for the file as a whole.
    pub path: String,
    /// What is wrong.
    pub code: CaseCode,
    /// The same in words.
    pub message: String,
}

impl CaseFinding {
    /// A finding about the file as a whole.
    pub fn of_file(code: CaseCode, message: impl Into<String>) -> Self {
        Self { path: String::new(), code, message: message.into() }
    }
}

/// What `case validate` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CaseReport {
    /// The Case can be run.
    Valid {
        /// `true`.
        valid: bool,
        /// How many Cells the matrix has.
        cells: u64,
        /// In the order of the file.
        warnings: Vec<CaseFinding>,
    },
    /// The Case cannot be run.
    Invalid {
        /// `false`.
        valid: bool,
        /// All errors, in the order of the file.
        errors: Vec<CaseFinding>,
        /// In the order of the file.
        warnings: Vec<CaseFinding>,
    },
}
