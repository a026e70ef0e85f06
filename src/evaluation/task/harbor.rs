//! `task.toml` of Harbor: its bounds, and variables of its tests and its solution.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::error::TaskError;
use super::fields::{VARIABLE_WANTED, is_variable_name};
use super::model::TaskBounds;

/// The name of the description of a Harbor task.
pub const HARBOR: &str = "task.toml";
/// The longest time that is taken, seconds: a year.
const SECS_MAX: f64 = 31_536_000.0;
/// As many CPUs are taken, thousandths.
const MILLI_CPUS_MAX: f64 = 1e9;

/// The keys of `task.toml` that count; the others are for people.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarborFile {
    agent: HarborStep,
    verifier: HarborStep,
    solution: HarborStep,
    environment: HarborEnvironment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarborStep {
    timeout_sec: Option<f64>,
    env: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HarborEnvironment {
    build_timeout_sec: Option<f64>,
    cpus: Option<f64>,
    memory: Option<String>,
    memory_mb: Option<u64>,
}

/// What a Harbor task asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HarborTerms {
    /// Its bounds.
    pub bounds: TaskBounds,
    /// Variables that only its tests get.
    pub tests_env: BTreeMap<String, String>,
    /// Variables that only its solution gets.
    pub solution_env: BTreeMap<String, String>,
}

/// What `text` asks for.
///
/// # Errors
/// [`TaskError::Invalid`] naming the field.
pub fn harbor_terms(text: &str) -> Result<HarborTerms, TaskError> {
    let file: HarborFile = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        TaskError::Invalid {
            file: Some(HARBOR.to_owned()),
            line: Some(before.matches('\n').count() as u64 + 1),
            field: None,
            reason: error.message().to_owned(),
        }
    })?;
    let environment = file.environment;
    let memory = environment.memory.as_deref().map(|text| {
        bytes_of(text).ok_or_else(|| {
            TaskError::field(HARBOR, "environment.memory", "it must be a size, such as 2G")
        })
    });
    let of_megabytes = environment.memory_mb.map(|megabytes| megabytes.saturating_mul(1 << 20));
    let bounds = TaskBounds {
        test_timeout_secs: seconds("verifier.timeout_sec", file.verifier.timeout_sec)?,
        agent_timeout_secs: seconds("agent.timeout_sec", file.agent.timeout_sec)?,
        install_timeout_secs: seconds(
            "environment.build_timeout_sec",
            environment.build_timeout_sec,
        )?,
        milli_cpus: thousandths(environment.cpus)?,
        memory_bytes: memory.transpose()?.or(of_megabytes),
    };
    let tests_env = variables("verifier.env", file.verifier.env)?;
    let solution_env = variables("solution.env", file.solution.env)?;
    Ok(HarborTerms { bounds, tests_env, solution_env })
}

/// The variables with their values. `${NAME:-default}` is its default: no variable of the host is read.
fn variables(
    table: &str,
    given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, TaskError> {
    let each = given.into_iter().map(|(name, value)| {
        let refuse = |reason: &str| TaskError::field(HARBOR, &format!("{table}.{name}"), reason);
        if !is_variable_name(&name) || value.contains('\0') {
            return Err(refuse(VARIABLE_WANTED));
        }
        let inner = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        let value = match inner.map(|inner| inner.split_once(":-")) {
            None => value,
            Some(Some((_, default))) => default.to_owned(),
            Some(None) => return Err(refuse("variables of the host are not passed on")),
        };
        Ok((name, value))
    });
    each.collect()
}

/// Whole seconds, at least one.
fn seconds(field: &str, given: Option<f64>) -> Result<Option<u64>, TaskError> {
    let reason = "it must be a number of seconds above 0";
    given
        .map(|secs| whole(secs, SECS_MAX).ok_or_else(|| TaskError::field(HARBOR, field, reason)))
        .transpose()
}

fn thousandths(cpus: Option<f64>) -> Result<Option<u64>, TaskError> {
    let reason = "it must be a number above 0";
    let field = "environment.cpus";
    given_thousandths(cpus).ok_or_else(|| TaskError::field(HARBOR, field, reason))
}

fn given_thousandths(cpus: Option<f64>) -> Option<Option<u64>> {
    match cpus {
        None => Some(None),
        Some(cpus) => whole(cpus * 1000.0, MILLI_CPUS_MAX).map(Some),
    }
}

/// The number, rounded up and at most `max`; `None` unless it is above 0.
fn whole(number: f64, max: f64) -> Option<u64> {
    // The digits of a number without a fraction are those of an integer.
    let digits = (number > 0.0).then(|| format!("{:.0}", number.min(max).ceil()));
    digits.and_then(|digits| digits.parse().ok())
}

/// `2G`, `512M`, `2Gi`, `512MB` as bytes, in powers of 1024.
fn bytes_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_cpus_and_memory_are_taken() {
        let text = "version = \"1.0\"\n[metadata]\nauthor = \"x\"\n[agent]\ntimeout_sec = 90.5\n\
                    [verifier]\ntimeout_sec = 30\n[environment]\ncpus = 2\nmemory = \"2G\"\n\
                    build_timeout_sec = 600.0\nstorage = \"10G\"\n";
        let bounds = harbor_terms(text).unwrap().bounds;
        assert_eq!(
            bounds,
            TaskBounds {
                test_timeout_secs: Some(30),
                agent_timeout_secs: Some(91),
                install_timeout_secs: Some(600),
                milli_cpus: Some(2000),
                memory_bytes: Some(2 << 30),
            }
        );
        assert_eq!(harbor_terms("").unwrap(), HarborTerms::default());
        let megabytes = harbor_terms("[environment]\nmemory_mb = 512").unwrap();
        assert_eq!(megabytes.bounds.memory_bytes, Some(512 << 20));
    }

    #[test]
    fn the_tests_and_the_solution_have_variables_of_their_own() {
        let text = "[verifier.env]\nMODE = \"strict\"\nLEVEL = \"${LEVEL:-2}\"\n\
                    [solution.env]\nSEED = \"$1\"\n";
        let terms = harbor_terms(text).unwrap();
        assert_eq!((terms.tests_env.len(), terms.solution_env.len()), (2, 1));
        assert_eq!(terms.tests_env["MODE"], "strict");
        assert_eq!(terms.tests_env["LEVEL"], "2");
        assert_eq!(terms.solution_env["SEED"], "$1");
    }

    #[test]
    fn a_wrong_value_names_its_field() {
        for (text, field) in [
            ("[agent]\ntimeout_sec = 0", Some("agent.timeout_sec")),
            ("[agent]\ntimeout_sec = nan", Some("agent.timeout_sec")),
            ("[environment]\ncpus = -1", Some("environment.cpus")),
            ("[environment]\nmemory = \"much\"", Some("environment.memory")),
            ("[agent]\ntimeout_sec = \"soon\"", None),
            ("[agent", None),
            ("[verifier.env]\nKEY = \"${KEY}\"", Some("verifier.env.KEY")),
            ("[solution.env]\n\"A B\" = \"1\"", Some("solution.env.A B")),
            ("[verifier]\nenv = 1", None),
        ] {
            match harbor_terms(text) {
                Err(TaskError::Invalid { field: found, .. }) => assert_eq!(found.as_deref(), field),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
