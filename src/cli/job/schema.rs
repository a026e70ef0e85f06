//! `cofferdam schema`: JSON Schemas of a job's request and result.

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::cli::failure::Failure;
use crate::cli::stdio::print;
use cofferdam_core::job::{RunJobRequest, RunJobResult};

const EXAMPLES: &str = "\
Examples:
  cofferdam schema request >run-job-request.json
  cofferdam schema result | jq .required

A request that fits its schema can still be refused: `cofferdam job validate` decides.
Exit codes: 0; 2 usage";

/// Prints the JSON Schema (draft 2020-12) of a job's request or result.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SchemaCommand {
    /// The document to describe
    #[arg(value_enum)]
    what: SchemaKind,
}

/// A document that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaKind {
    /// The request of a job
    Request,
    /// The result of a job
    Result,
}

impl SchemaCommand {
    /// Prints the schema.
    pub fn run(&self) -> Result<u8, Failure> {
        let text = serde_json::to_string_pretty(&schema_of(self.what));
        let failed =
            |error: serde_json::Error| Failure::Write { what: "the schema", source: error.into() };
        print(&(text.map_err(failed)? + "\n"))?;
        Ok(0)
    }
}

/// The schema as JSON: of what is read for a request, of what is written for a result.
fn schema_of(what: SchemaKind) -> Value {
    let settings = SchemaSettings::draft2020_12();
    match what {
        SchemaKind::Request => {
            named::<RunJobRequest>(settings.for_deserialize(), "run-job-request")
        }
        SchemaKind::Result => named::<RunJobResult>(settings.for_serialize(), "run-job-result"),
    }
}

fn named<T: JsonSchema>(settings: SchemaSettings, name: &str) -> Value {
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    // A name, not a URL: nothing is fetched from it.
    schema.insert("$id".to_owned(), json!(format!("urn:cofferdam:schema:{name}:1")));
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::job::{JobLimits, parse_request};

    /// The object schema of `schema`, references resolved.
    fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let alternatives = schema.get("anyOf").and_then(Value::as_array);
        match (reference, alternatives) {
            (Some(reference), _) => resolved(root, root.pointer(&reference[1..]).unwrap()),
            (None, Some(all)) => {
                let object = all.iter().map(|one| resolved(root, one));
                object.into_iter().find(|one| one["type"] == "object").unwrap_or(schema)
            }
            (None, None) => schema,
        }
    }

    /// The paths of the keys in `value` that `schema` does not have.
    fn unknown(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
        let schema = resolved(root, schema);
        match value {
            Value::Object(members) => members
                .iter()
                .flat_map(|(key, value)| {
                    let path = format!("{path}.{key}");
                    let known = schema["properties"].get(key);
                    let others = schema.get("additionalProperties").filter(|any| **any != false);
                    match known.or(others) {
                        Some(known) => unknown(root, known, value, &path),
                        None => vec![path],
                    }
                })
                .collect(),
            Value::Array(items) => {
                items.iter().flat_map(|item| unknown(root, &schema["items"], item, path)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn full_request() -> Value {
        json!({
            "job_id": "job_1",
            "trace": {"trace_id": "t", "anything": "else"},
            "workspace": {
                "source": "local_path", "path": "/abs/dir", "include": ["**"], "exclude": ["*.log"]
            },
            "command": {
                "argv": ["python3", "main.py"], "cwd": "sub", "env": {"LANG": "C"}, "stdin": ""
            },
            "policy": {
                "allowed_commands": [
                    "python3",
                    {"basename": "python", "path": "/usr/bin/python3", "sha256": "ab".repeat(32)},
                ],
                "allowed_env": ["LANG"], "allow_shell": false,
                "network": {"allow": ["a.example"]},
                "artifacts": {"include": ["out/**"], "deny": ["**/*.key"]},
                "require_enforced": ["memory", "network"],
            },
            "limits": JobLimits::default(),
            "backend": {"kind": "local_process"},
        })
    }

    #[test]
    fn the_schema_of_a_request_has_exactly_the_keys_of_a_request() {
        let schema = schema_of(SchemaKind::Request);
        assert_eq!(schema["$id"], "urn:cofferdam:schema:run-job-request:1");
        assert_eq!(schema["title"], "RunJobRequest");
        let request = full_request();
        let parsed = parse_request(request.to_string().as_bytes()).unwrap();
        for value in [&request, &serde_json::to_value(parsed).unwrap()] {
            assert_eq!(unknown(&schema, &schema, value, ""), [""; 0]);
        }
        for (path, object) in [
            ("", &schema),
            ("workspace", resolved(&schema, &schema["properties"]["workspace"])),
            ("command", resolved(&schema, &schema["properties"]["command"])),
            ("policy", resolved(&schema, &schema["properties"]["policy"])),
            ("artifacts", &schema["$defs"]["ArtifactPatterns"]),
            ("limits", resolved(&schema, &schema["properties"]["limits"])),
            ("backend", resolved(&schema, &schema["properties"]["backend"])),
        ] {
            assert_eq!(object["additionalProperties"], false, "{path}: {object}");
            // The parser accepts neither a list nor null.
            assert_eq!(object["type"], "object", "{path}: {object}");
        }
    }

    #[test]
    fn a_request_schema_has_required_keys_and_minimum_limits() {
        let schema = schema_of(SchemaKind::Request);
        assert_eq!(schema["required"], json!(["workspace", "command"]));
        assert_eq!(schema["$defs"]["WorkspaceRequest"]["required"], json!(["source", "path"]));
        assert_eq!(schema["$defs"]["CommandRequest"]["required"], json!(["argv"]));
        assert_eq!(schema["$defs"]["CommandRequest"]["properties"]["argv"]["minItems"], 1);
        let limits = &schema["$defs"]["JobLimits"]["properties"];
        for (name, _) in JobLimits::default().named() {
            assert_eq!(limits[name]["minimum"], JobLimits::least(name), "{name}");
        }
    }

    #[test]
    fn the_parser_accepts_a_request_with_only_the_required_keys() {
        let minimal = json!({
            "workspace": {"source": "local_path", "path": "/w"}, "command": {"argv": ["true"]},
        });
        assert!(parse_request(minimal.to_string().as_bytes()).is_ok());
    }

    fn result() -> Value {
        let stream = json!({
            "text": "", "truncated": false, "bytes": 0, "sha256": "ab".repeat(32),
            "encoding": "utf-8",
        });
        json!({
            "job_id": "job_1", "status": "completed", "trace": {"a": 1},
            "command": {
                "argv": ["a"], "cwd": ".",
                "executable": {"path": "/usr/bin/a", "sha256": "ab".repeat(32)},
            },
            "exit_code": 0, "signal": null, "stdout": stream, "stderr": stream,
            "artifacts": [{
                "path": "a", "bytes": 0, "sha256": "ab".repeat(32), "uri": "file:///a",
                "truncated": false,
            }],
            "artifacts_omitted": [{"path": "b", "reason": "denied"}],
            "snapshot": {"files": 1, "bytes": 2, "excluded": {"vcs": 1}},
            "policy": {
                "decision": "allowed", "reasons": [], "version": "v1:", "network": "none",
                "network_enforced": true,
            },
            "egress": [{
                "at": "", "step": null, "host": "a.example", "port": 443, "address": "192.0.2.1",
                "decision": "denied", "reason": "not_listed", "bytes_sent": 1, "bytes_received": 2,
                "method": "GET", "status": 403, "rule": 0, "secrets": ["a"], "path": "/b",
            }],
            "usage": {
                "wall_ms": 1, "cpu_ms": 1, "memory_peak_bytes": 1, "memory_peak_source": "cgroup2",
                "processes_peak": 1, "oom_kills": 0, "stdout_bytes": 0, "stderr_bytes": 0,
            },
            "enforced": {"memory": "cgroup2"}, "not_enforced": [],
            "replay": {"request": "v1:", "snapshot": "v1:", "result": "v1:"},
            "timing": {
                "queued_at": "", "started_at": "", "finished_at": "", "duration_ms": 1,
            },
            "error": {"code": "run.exit_nonzero", "message": "", "details": {"exit_code": 1}},
            "not_recorded": ["stdout"],
        })
    }

    #[test]
    fn the_schema_of_a_result_has_every_key_that_is_written() {
        let schema = schema_of(SchemaKind::Result);
        assert_eq!(schema["title"], "RunJobResult");
        let result = result();
        let parsed: RunJobResult = serde_json::from_value(result.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), result);
        assert_eq!(unknown(&schema, &schema, &result, ""), [""; 0]);
        let required = schema["required"].as_array().unwrap();
        for key in result.as_object().unwrap().keys().filter(|key| *key != "not_recorded") {
            assert!(required.iter().any(|name| name == key), "{key} is always there");
        }
    }
}
