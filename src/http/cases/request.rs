//! Reads requests for runs of Cases strictly (pure).

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::case::harness::CaseDenial;
use crate::case::service::CaseRunsError;
use crate::http::error::HttpError;
use crate::http::request::percent_decode;
use cofferdam_core::job::{ErrorCode, JobError};
use cofferdam_core::json::{JsonFault, parse_object};

/// The first bytes of gzip, and of zip: with entries, and without.
const ARCHIVES: [&[u8]; 3] = [&[0x1f, 0x8b], b"PK\x03\x04", b"PK\x05\x06"];
/// The key of the command line that requests do not have.
const EXECUTOR: &str = "executor";
const KEYS: &str = "want trials, harnesses or models";

/// Which Cells are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedCells {
    /// Trials of each harness and model instead of the Case's, at least 1.
    pub trials: Option<u64>,
    /// Only these harnesses; all if empty.
    pub harnesses: Vec<String>,
    /// Only these models; all if empty.
    pub models: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseBody {
    path: PathBuf,
    trials: Option<u64>,
    #[serde(default)]
    harnesses: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
}

/// Whether a body is the archive of a Case, by its first bytes.
pub fn is_archive(body: &[u8]) -> bool {
    ARCHIVES.iter().any(|start| body.starts_with(start))
}

/// Parses a request in JSON, which has nothing in its query: where the Case is, and which Cells.
pub fn parse_json(query: &str, body: &[u8]) -> Result<(PathBuf, AskedCells), HttpError> {
    if let Some(pair) = query.split('&').find(|pair| !pair.is_empty()) {
        let key = pair.split('=').next().and_then(percent_decode).unwrap_or_default();
        return Err(CaseRunsError::invalid(key, "unknown; JSON has it in the body").into());
    }
    let parsed: CaseBody = parse_object(body).map_err(|fault| refused(body, fault))?;
    let CaseBody { path, trials, harnesses, models } = parsed;
    if !path.is_absolute() {
        return Err(CaseRunsError::invalid("path", "want an absolute path").into());
    }
    Ok((path, AskedCells { trials: checked(trials)?, harnesses, models }))
}

fn refused(body: &[u8], fault: JsonFault) -> HttpError {
    match fault {
        JsonFault::NotJson { line, column } => {
            let error = JobError::new(ErrorCode::InvalidRequest, fault.to_string());
            HttpError::NotJson(error.with("line", line).with("column", column))
        }
        JsonFault::Invalid { path, .. } if path == EXECUTOR => {
            let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
            executor(value.get(EXECUTOR).and_then(Value::as_str).unwrap_or_default()).into()
        }
        JsonFault::Invalid { path, words } => {
            let message = words.strip_prefix(&format!("{path}: ")).unwrap_or(&words);
            let field = if path == "." { "body" } else { path.as_str() };
            CaseRunsError::invalid(field, message).into()
        }
    }
}

/// Parses the query of an archive. Names are divided by commas, or their key is there again.
pub fn parse_query(query: &str) -> Result<AskedCells, CaseRunsError> {
    let mut asked = AskedCells::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = percent_decode(key).ok_or_else(|| CaseRunsError::invalid("", "malformed"))?;
        let fault = |message: &str| CaseRunsError::invalid(key.as_str(), message);
        // Before the comma's own escape is decoded.
        let values = value.split(',').map(percent_decode).collect::<Option<Vec<_>>>();
        let values = values.ok_or_else(|| fault("malformed"))?;
        match key.as_str() {
            "trials" if asked.trials.is_some() => return Err(fault("there twice")),
            "trials" => {
                let number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit());
                let only = Some(value.to_owned()).filter(number);
                let trials = only.and_then(|text| text.parse().ok());
                asked.trials = checked(Some(trials.unwrap_or_default()))?;
            }
            "harnesses" | "models" if values.iter().any(String::is_empty) => {
                return Err(fault("want names divided by commas"));
            }
            "harnesses" => asked.harnesses.extend(values),
            "models" => asked.models.extend(values),
            EXECUTOR => return Err(executor(values.first().map_or("", String::as_str))),
            "path" => return Err(fault("the Case is in the body")),
            _ => return Err(fault(&format!("unknown; {KEYS}"))),
        }
    }
    Ok(asked)
}

fn checked(trials: Option<u64>) -> Result<Option<u64>, CaseRunsError> {
    match trials {
        Some(0) => Err(CaseRunsError::invalid("trials", "want a whole number from 1")),
        trials => Ok(trials),
    }
}

/// The service chooses the executor; the one that isolates nothing is denied.
fn executor(word: &str) -> CaseRunsError {
    if word == "local" {
        return CaseRunsError::Denied(vec![CaseDenial {
            path: EXECUTOR.to_owned(),
            code: "policy.executor_denied",
            message: "nothing is isolated there: not for Cases by HTTP".to_owned(),
        }]);
    }
    CaseRunsError::invalid(EXECUTOR, format!("unknown; {KEYS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_an_archive_by_its_first_bytes() {
        for (body, is) in [
            (&b"\x1f\x8b\x08"[..], true),
            (b"PK\x03\x04", true),
            (b"PK\x05\x06", true),
            (b"PK", false),
            (b"{\"path\":\"/a\"}", false),
            (b"", false),
        ] {
            assert_eq!(is_archive(body), is, "{body:?}");
        }
    }

    #[test]
    fn the_query_of_an_archive_names_cells() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
        let asked = parse_query("trials=3&harnesses=nop,a%2Cb&models=m&harnesses=c").unwrap();
        let expected = AskedCells {
            trials: Some(3),
            harnesses: names(&["nop", "a,b", "c"]),
            models: names(&["m"]),
        };
        assert_eq!(asked, expected);
        assert_eq!(parse_query("").unwrap(), AskedCells::default());
        for (query, field) in [
            ("trials=0", "trials"),
            ("trials=", "trials"),
            ("trials=+1", "trials"),
            ("trials=1,2", "trials"),
            ("trials=1&trials=1", "trials"),
            ("harnesses=", "harnesses"),
            ("models=a,,b", "models"),
            ("models=%ff", "models"),
            ("path=/a", "path"),
            ("executor=sandboxed", "executor"),
            ("keep=1", "keep"),
            ("%=1", ""),
        ] {
            let error = parse_query(query).unwrap_err();
            assert_eq!(error.details()["field"], field, "{query}: {error}");
        }
        let error = parse_query("executor=local").unwrap_err();
        assert_eq!(error.details()["denials"][0]["path"], "executor");
    }
}
