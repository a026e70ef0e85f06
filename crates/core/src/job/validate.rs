//! Parses and validates requests, and checks their limits.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;

use super::document::{self, ShapeError};
use super::error::{ErrorCode, JobError};
use super::id::JobId;
use super::limits::JobLimits;
use super::policy::Network;
use super::request::RunJobRequest;
use crate::NetworkObject;
use crate::json::shown_words;
use crate::values::glob::Globs;
use crate::values::names::is_variable_name;
use crate::values::rel_path::RelPath;

/// Why bytes are not a valid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobRequestError {
    /// They are not JSON.
    #[error("{0}")]
    NotJson(JobError),
    /// They are JSON, but not a valid request.
    #[error("{0}")]
    Invalid(JobError),
}

impl JobRequestError {
    /// The error for the client.
    pub fn into_error(self) -> JobError {
        match self {
            Self::NotJson(error) | Self::Invalid(error) => error,
        }
    }
}

/// Parses and validates a request. Unknown and duplicate keys are refused.
///
/// # Errors
/// `details.path` of the error is the path of the first invalid value.
pub fn parse_request(bytes: &[u8]) -> Result<ValidRequest, JobRequestError> {
    let document = document::read(bytes).map_err(|fault| not_json(&fault))?;
    let document = document.map_err(|fault| JobRequestError::Invalid(shape_error(&fault)))?;
    let parsed: Result<RunJobRequest, _> = serde_path_to_error::deserialize(document);
    let request = parsed.map_err(|fault| {
        let path = fault.path().to_string();
        JobRequestError::Invalid(untyped(&path, &fault.into_inner().to_string()))
    })?;
    ValidRequest::try_from(request).map_err(JobRequestError::Invalid)
}

fn shape_error(fault: &ShapeError) -> JobError {
    match fault.path.as_str() {
        "" => {
            let words = "the request must be a JSON object";
            JobError::new(ErrorCode::InvalidRequest, words).with("path", ".")
        }
        path => invalid(path, fault.words),
    }
}

/// Converts serde's error for the value at `path`. A missing value is named by its own path.
fn untyped(path: &str, words: &str) -> JobError {
    let missing = words.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    let Some(name) = missing else { return invalid(path, &shown_words(path, words)) };
    let words = format!("missing field \"{name}\"");
    if path == "." {
        return JobError::new(ErrorCode::InvalidRequest, words).with("path", name);
    }
    invalid(path, &words).with("path", format!("{path}.{name}"))
}

fn not_json(fault: &serde_json::Error) -> JobRequestError {
    JobRequestError::NotJson(JobError::new(
        ErrorCode::InvalidRequest,
        format!("not JSON: line {} column {}", fault.line(), fault.column()),
    ))
}

fn invalid(path: &str, fault: &str) -> JobError {
    JobError::new(ErrorCode::InvalidRequest, format!("{path}: {fault}")).with("path", path)
}

/// A valid request. It is validated once: by [`parse_request`], or by `ValidRequest::try_from`
/// if it is built in Rust.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ValidRequest(RunJobRequest, #[serde(skip)] String);

impl ValidRequest {
    /// The same, as the holder of `token` asks for it.
    #[must_use]
    pub fn of_token(self, token: &str) -> Self {
        Self(self.0, token.to_owned())
    }

    /// The name of the token that it was sent with; empty if there was none.
    pub fn token(&self) -> &str {
        &self.1
    }

    /// The job's id, which is generated now if the request has none.
    pub fn id_or_generate(&mut self) -> JobId {
        self.0.job_id.get_or_insert_with(JobId::random).clone()
    }

    /// Checks every limit against the runner's maximum.
    ///
    /// # Errors
    /// The first limit above its maximum, in `details.path`, and the maximum in `details.max`.
    pub fn check_maxima(&self, maxima: &JobLimits) -> Result<(), JobError> {
        let maxima: BTreeMap<_, _> = maxima.named().into();
        for (name, value) in self.limits.named() {
            let max = maxima.get(name).copied().unwrap_or(u64::MAX);
            if value > max {
                let fault = format!("more than the maximum here, {max}");
                return Err(invalid(&format!("limits.{name}"), &fault).with("max", max));
            }
        }
        Ok(())
    }
}

impl TryFrom<RunJobRequest> for ValidRequest {
    /// Its `details.path` is the path of the first invalid value.
    type Error = JobError;

    fn try_from(request: RunJobRequest) -> Result<Self, JobError> {
        request.check()?;
        Ok(Self(request, String::new()))
    }
}

impl Deref for ValidRequest {
    type Target = RunJobRequest;

    fn deref(&self) -> &RunJobRequest {
        &self.0
    }
}

impl RunJobRequest {
    /// Validates what the types cannot express.
    fn check(&self) -> Result<(), JobError> {
        let Self { workspace, command, policy, limits, .. } = self;
        if !workspace.path.is_absolute() {
            return Err(invalid("workspace.path", "want an absolute path"));
        }
        if workspace.path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(invalid("workspace.path", "holds a NUL"));
        }
        self.check_command()?;
        for (name, patterns) in [
            ("workspace.include", &workspace.include),
            ("workspace.exclude", &workspace.exclude),
            ("policy.artifacts.include", &policy.artifacts.include),
            ("policy.artifacts.deny", &policy.artifacts.deny),
        ] {
            Globs::parse(patterns)
                .map_err(|bad| invalid(&format!("{name}[{}]", bad.index), &bad.to_string()))?;
        }
        check_names("command.env", command.env.keys())?;
        check_names("policy.allowed_env", &policy.allowed_env)?;
        if let Network::Allow(NetworkObject { allow, .. }) = &policy.network
            && allow.len() > NetworkObject::HOSTS_MAX
        {
            let fault = format!("more than {} hosts", NetworkObject::HOSTS_MAX);
            return Err(invalid("policy.network.allow", &fault));
        }
        for (name, value) in limits.named() {
            let least = JobLimits::least(name);
            if value < least {
                return Err(invalid(&format!("limits.{name}"), &format!("at least {least}")));
            }
        }
        Ok(())
    }

    fn check_command(&self) -> Result<(), JobError> {
        let argv = &self.command.argv;
        if argv.first().is_none_or(String::is_empty) {
            return Err(invalid("command.argv", "want a program"));
        }
        if let Some(index) = argv.iter().position(|word| word.contains('\0')) {
            return Err(invalid(&format!("command.argv[{index}]"), "holds a NUL"));
        }
        if let Some((key, _)) = self.command.env.iter().find(|(_, value)| value.contains('\0')) {
            return Err(invalid(&format!("command.env.{key}"), "holds a NUL"));
        }
        let cwd = &self.command.cwd;
        if cwd != "." && RelPath::parse(cwd).is_err() {
            let error = JobError::new(
                ErrorCode::PathEscape,
                "command.cwd: want `.` or a relative path that stays in the workspace",
            );
            return Err(error.with("path", "command.cwd"));
        }
        Ok(())
    }
}

fn check_names<'a>(
    path: &str,
    names: impl IntoIterator<Item = &'a String>,
) -> Result<(), JobError> {
    match names.into_iter().find(|name| !is_variable_name(name)) {
        Some(name) => Err(invalid(path, "want names of letters, digits and _, no digit first")
            .with("key", name.as_str())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn minimal() -> Value {
        json!({
            "workspace": {"source": "local_path", "path": "/w"},
            "command": {"argv": ["python3", "main.py"]},
        })
    }

    fn parse(value: &Value) -> Result<ValidRequest, JobRequestError> {
        parse_request(value.to_string().as_bytes())
    }

    #[test]
    fn a_minimal_request_has_the_defaults_of_the_contract() {
        let request = parse(&minimal()).unwrap();
        assert_eq!(request.limits, JobLimits::default());
        assert_eq!(request.workspace.include, ["**"]);
        assert_eq!((request.command.cwd.as_str(), request.policy.allow_shell), (".", false));
        assert!(request.policy.allowed_commands.is_empty() && request.job_id.is_none());
        let again = serde_json::to_value(&request).unwrap();
        assert_eq!(parse(&again).unwrap(), request);
    }

    #[test]
    fn an_invalid_value_is_named_by_its_path() {
        for (pointer, value, path) in [
            ("/extra", json!(1), "extra"),
            ("/workspace/extra", json!(1), "workspace.extra"),
            ("/command/extra", json!(1), "command.extra"),
            ("/policy", json!({"extra": 1}), "policy.extra"),
            ("/policy", json!({"artifacts": {"extra": 1}}), "policy.artifacts.extra"),
            ("/policy", json!({"network": "bridge"}), "policy.network"),
            (
                "/policy",
                json!({"allowed_commands": ["a", {"name": "b"}]}),
                "policy.allowed_commands[1].name",
            ),
            ("/policy", json!({"require_enforced": ["magic"]}), "policy.require_enforced[0]"),
            ("/policy", json!({"allowed_env": ["A-B"]}), "policy.allowed_env"),
            ("/limits", json!({"timeout_ms": 0}), "limits.timeout_ms"),
            ("/limits", json!({"timeout_ms": -1}), "limits.timeout_ms"),
            ("/limits", json!({"timeout_ms": 1.5}), "limits.timeout_ms"),
            ("/limits", json!({"record_bytes": 1}), "limits.record_bytes"),
            ("/limits", json!({"wall": 1}), "limits.wall"),
            ("/backend", json!({"kind": "magic"}), "backend.kind"),
            ("/job_id", json!("../x"), "job_id"),
            ("/workspace/source", json!("git"), "workspace.source"),
            ("/workspace/path", json!("relative"), "workspace.path"),
            ("/workspace/include", json!(["a", "["]), "workspace.include[1]"),
            ("/command/argv", json!("python3 main.py"), "command.argv"),
            ("/command/argv", json!([]), "command.argv"),
            ("/command/argv", json!([""]), "command.argv"),
            ("/command/argv", json!(["a", "b\0"]), "command.argv[1]"),
            ("/command/env", json!({"A=": "x"}), "command.env"),
            ("/command/env", json!({"A": "x\0"}), "command.env.A"),
        ] {
            let mut request = minimal();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            request.pointer_mut(parent).unwrap()[key] = value.clone();
            let fault = parse(&request).unwrap_err();
            let JobRequestError::Invalid(error) = fault else {
                panic!("{pointer} {value}: {fault}")
            };
            assert_eq!(error.code, ErrorCode::InvalidRequest, "{pointer} {value}");
            assert_eq!(error.details["path"], path, "{pointer} {value}: {error}");
        }
    }

    #[test]
    fn a_missing_value_is_named() {
        for (parent, key, path, words) in [
            ("", "workspace", "workspace", "missing field \"workspace\""),
            ("/workspace", "path", "workspace.path", "workspace: missing field \"path\""),
            ("/command", "argv", "command.argv", "command: missing field \"argv\""),
        ] {
            let mut request = minimal();
            request.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
            let error = parse(&request).unwrap_err().into_error();
            assert_eq!((error.message.as_str(), &error.details["path"]), (words, &json!(path)));
        }
    }

    #[test]
    fn a_working_directory_that_leaves_the_workspace_is_an_escape() {
        for cwd in ["/", "..", "a/../..", "a/..", "", "a//b"] {
            let mut request = minimal();
            request["command"]["cwd"] = json!(cwd);
            let error = parse(&request).unwrap_err().into_error();
            assert_eq!(error.code, ErrorCode::PathEscape, "{cwd:?}");
        }
    }

    #[test]
    fn text_that_is_not_json_is_told_apart() {
        for text in [
            "",
            "{",
            "nonsense",
            "{} {}",
            "\u{feff}{}",
            "[",
            "[7",
            r#"{"unknown":1"#,
            r#"{"workspace":7,}"#,
            r#"{"a":1,"a":1"#,
        ] {
            let fault = parse_request(text.as_bytes()).unwrap_err();
            assert!(matches!(fault, JobRequestError::NotJson(_)), "{text:?}");
        }
        for text in ["[]", "7", "null", "\"text\""] {
            let fault = parse_request(text.as_bytes()).unwrap_err();
            let JobRequestError::Invalid(error) = fault else { panic!("{text}: {fault}") };
            assert_eq!(error.message, "the request must be a JSON object", "{text}");
            assert_eq!(error.details["path"], ".");
        }
    }

    #[test]
    fn a_list_is_not_an_object_and_an_object_not_a_word() {
        let refused = |text: &str| {
            let fault = parse_request(text.as_bytes()).unwrap_err();
            let JobRequestError::Invalid(error) = fault else { panic!("{text}: {fault}") };
            error.details["path"].as_str().unwrap().to_owned()
        };
        let whole = r#"["arr1",{},["local_path","/x",[],[]],[["true"],".",{},""]]"#;
        assert_eq!(refused(whole), ".");
        for (pointer, value, path) in [
            ("/trace", json!([]), "trace"),
            ("/workspace", json!(["local_path", "/x", ["**"], []]), "workspace"),
            ("/workspace/source", json!({"local_path": null}), "workspace.source"),
            ("/command", json!([["true"], ".", {}, ""]), "command"),
            ("/command/env", json!([["A", "b"]]), "command.env"),
            ("/policy", json!([]), "policy"),
            ("/policy", json!({"artifacts": [[], []]}), "policy.artifacts"),
            ("/policy", json!({"network": {"none": null}}), "policy.network.none"),
            ("/policy", json!({"network": ["a"]}), "policy.network"),
            ("/policy", json!({"network": {"allow": "a"}}), "policy.network.allow"),
            ("/policy", json!({"network": {"allow": ["a", 1]}}), "policy.network.allow[1]"),
            ("/policy", json!({"network": {"rules": []}}), "policy.network.rules"),
            ("/policy", json!({"network": {"routes": {}}}), "policy.network.routes"),
            (
                "/policy",
                json!({"require_enforced": ["disk", {"memory": null}]}),
                "policy.require_enforced[1]",
            ),
            ("/policy", json!({"allowed_commands": [["a"]]}), "policy.allowed_commands[0]"),
            ("/limits", json!([1, 2]), "limits"),
            ("/limits", json!(null), "limits"),
            ("/backend", json!(["local_process"]), "backend"),
            ("/backend", json!({"kind": {"local_process": null}}), "backend.kind"),
        ] {
            let mut request = minimal();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            request.pointer_mut(parent).unwrap()[key] = value;
            assert_eq!(refused(&request.to_string()), path);
        }
    }

    #[test]
    fn a_duplicate_key_is_refused_known_or_not() {
        for (member, path) in [
            (r#""trace":{"a":1,"a":1}"#, "trace.a"),
            (r#""trace":{"a":{"b":1,"b":2}}"#, "trace.a.b"),
            (r#""limits":{"timeout_ms":1,"timeout_ms":1}"#, "limits.timeout_ms"),
            (r#""policy":{},"policy":{}"#, "policy"),
        ] {
            let text = minimal().to_string().replacen('{', &format!("{{{member},"), 1);
            let error = parse_request(text.as_bytes()).unwrap_err().into_error();
            assert_eq!(error.details["path"], path, "{text}");
        }
        let env = r#"{"workspace":{"source":"local_path","path":"/w"},
            "command":{"argv":["a"],"env":{"A":"1","B":"2","A":"1"}}}"#;
        let error = parse_request(env.as_bytes()).unwrap_err().into_error();
        assert_eq!(error.message, "command.env.A: the key is there twice");
    }

    #[test]
    fn a_limit_above_the_maximum_is_refused_with_it() {
        let request = parse(&minimal()).unwrap();
        let mut maxima = JobLimits::default();
        assert_eq!(request.check_maxima(&maxima), Ok(()));
        maxima.memory_bytes -= 1;
        let error = request.check_maxima(&maxima).unwrap_err();
        assert_eq!(error.details["path"], "limits.memory_bytes");
        assert_eq!(error.details["max"], maxima.memory_bytes);
    }

    #[test]
    fn a_request_built_in_rust_is_validated_as_a_parsed_one() {
        let mut request: RunJobRequest = serde_json::from_value(minimal()).unwrap();
        assert_eq!(ValidRequest::try_from(request.clone()), Ok(parse(&minimal()).unwrap()));
        request.command.argv.clear();
        let mut document = minimal();
        document["command"]["argv"] = json!([]);
        let error = parse(&document).unwrap_err().into_error();
        assert_eq!(ValidRequest::try_from(request), Err(error));
    }
}
