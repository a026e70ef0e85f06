//! Reads variables through their rows of the table, and collects what is wrong with them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::table::{self, Variable};

/// An unknown name with one of these prefixes is probably a mistake.
const PREFIXES: [&str; 7] =
    ["RUN_", "JOBS_", "ENGINE_", "EVAL_", "CASES_", "FIRECRACKER_", "EGRESS_"];

/// Everything wrong with the configuration, one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Problems(pub Vec<String>);

impl Problems {
    /// `value`, unless there is a problem.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

/// The environment, and what was found wrong with it so far.
#[derive(Debug)]
pub struct VariableReader {
    values: BTreeMap<OsString, OsString>,
    problems: Vec<String>,
}

impl VariableReader {
    /// Reads `environment`.
    pub fn new(environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { values: environment.into_iter().collect(), problems: Vec::new() }
    }

    /// All that was found wrong.
    pub fn into_problems(self) -> Problems {
        Problems(self.problems)
    }

    /// The value of `variable` as it is, if it is set.
    pub fn raw(&self, variable: &Variable) -> Option<&OsStr> {
        self.values.get(OsStr::new(variable.name)).map(OsString::as_os_str)
    }

    /// The variable `name` of the environment, which need not be one of ours.
    pub fn any_text(&self, name: &str) -> Option<&str> {
        self.values.get(OsStr::new(name))?.to_str()
    }

    /// The value of `variable`, if it is set and UTF-8.
    pub fn text(&self, variable: &Variable) -> Option<&str> {
        self.raw(variable)?.to_str()
    }

    /// The value of `variable`. If it is not set or does not parse, the default of its row, or of
    /// `T` if the row has none.
    pub fn value<T: Default>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> T {
        if let Some(raw) = self.raw(variable) {
            if let Some(value) = raw.to_str().and_then(&parse) {
                return value;
            }
            let got = raw.to_string_lossy().into_owned();
            self.refuse(variable, &got);
        }
        // A unit test parses the default of every row.
        variable.default_value().and_then(parse).unwrap_or_default()
    }

    /// The value of `variable`, or none if it is not set or does not parse.
    pub fn optional<T>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.value(variable, |text| parse(text).map(Some))
    }

    /// The value of `variable`, which must be set.
    pub fn required<T>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.must_be_set(variable);
        self.optional(variable, parse)
    }

    /// The directory that `variable` names; any text but an empty one.
    pub fn directory(&mut self, variable: &Variable) -> Option<PathBuf> {
        self.path(variable, |path| !path.as_os_str().is_empty())
    }

    /// The absolute path that `variable` names.
    pub fn absolute(&mut self, variable: &Variable) -> Option<PathBuf> {
        self.path(variable, |path| path.is_absolute())
    }

    /// The absolute path that `variable`, which must be set, names.
    pub fn required_absolute(&mut self, variable: &Variable) -> Option<PathBuf> {
        self.must_be_set(variable);
        self.absolute(variable)
    }

    /// Refuses each of `variables` that is set: without `main` it has no effect.
    pub fn refuse_without<'a>(
        &mut self,
        main: &Variable,
        variables: impl IntoIterator<Item = &'a Variable>,
    ) {
        for variable in variables {
            if self.raw(variable).is_some() {
                let name = main.name;
                self.problem(format!("{}: want {name} beside it, got none", variable.name));
            }
        }
    }

    /// Names that look like variables of the table. Orchestrators set such names themselves, so
    /// they are no problem.
    pub fn unknown_names(&self) -> impl Iterator<Item = String> {
        let is_unknown = |name: &str| {
            PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                && table::variables().all(|variable| variable.name != name)
        };
        let names = self.values.keys().map(|name| name.to_string_lossy().into_owned());
        names.filter(move |name| is_unknown(name))
    }

    /// Adds the problem that `name`, a variable or an option, has the value `got`.
    pub fn refuse_value(&mut self, name: &str, want: &str, got: &str) {
        self.problem(format!("{name}: want {want}, got {got:?}"));
    }

    /// Adds a problem.
    pub fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn refuse(&mut self, variable: &Variable, got: &str) {
        self.refuse_value(variable.name, variable.wanted, got);
    }

    fn must_be_set(&mut self, variable: &Variable) {
        if self.raw(variable).is_none() {
            self.problem(format!("{}: want {}, got none", variable.name, variable.wanted));
        }
    }

    fn path(
        &mut self,
        variable: &Variable,
        is_valid: impl FnOnce(&PathBuf) -> bool,
    ) -> Option<PathBuf> {
        if let Some(path) = self.raw(variable).map(PathBuf::from) {
            if is_valid(&path) {
                return Some(path);
            }
            self.refuse(variable, &path.to_string_lossy());
        }
        variable.default_value().map(PathBuf::from)
    }
}
