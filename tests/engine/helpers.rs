//! `POST /v1/helpers/{name}` and `cofferdam helper`.

use std::fs;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::exchange::{ask, command_line, engine_server};

/// Calls of helpers, and their answers.
fn calls() -> Vec<(&'static str, Value, Value)> {
    vec![
        (
            "extract_code_blocks",
            json!({"input": "a\n```python\nprint(1)\n```\n", "delimiter": {"start": "```", "end": "```"}}),
            json!({"code_blocks": [{"code": "print(1)\n", "language": "python"}]}),
        ),
        (
            "build_block_spec",
            json!({"index": 3, "block": {"code": "ls", "language": "Bash"}}),
            json!({"file": "code_3.sh", "mode": 493, "cmd": "bash", "args": []}),
        ),
        (
            "normalize_globs",
            json!({"patterns": ["$OUTPUT_DIR/a", "${WORK_DIR}/**", "$OUTPUT_DIRECTORY/x"]}),
            json!({"patterns": ["out/a", "work/**", "$OUTPUT_DIRECTORY/x"]}),
        ),
        ("parse_artifact_ref", json!({"ref": "a@b@123"}), json!({"name": "a@b", "version": 123})),
        ("parse_artifact_ref", json!({"ref": "tail@"}), json!({"name": "tail@", "version": null})),
        ("is_text_mime", json!({"mime_type": "text/plain; charset=utf-8"}), json!({"text": true})),
        (
            "result_string",
            json!({"output": "o", "output_files": [{"name": "f", "content": "c", "mime_type": "text/plain"}]}),
            json!({"text": "Code execution result:\no\n Saved output files:\nf"}),
        ),
    ]
}

#[test]
fn a_helper_answers_the_same_over_http_and_on_the_command_line() {
    let directory = tempdir().unwrap();
    let service = engine_server(directory.path()).start();
    for (name, body, answer) in calls() {
        let body = body.to_string();
        let target = format!("/v1/helpers/{name}");
        let reply = ask(&service, "POST", &target, "", body.as_bytes());
        assert_eq!((reply.status, reply.json()), (200, answer.clone()), "{name} {body}");
        let output = command_line(&["helper", name], body.as_bytes(), &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{answer}\n"));
    }
}

#[test]
fn a_wrong_body_is_the_same_error_over_http_and_on_the_command_line() {
    let directory = tempdir().unwrap();
    let service = engine_server(directory.path()).start();
    for (name, body, status) in [
        ("is_text_mime", "{", 400),
        ("is_text_mime", "", 400),
        ("is_text_mime", r#"{"mime_type": 1}"#, 422),
        ("is_text_mime", r#"{"mime_type": "a", "x": 1}"#, 422),
        ("parse_artifact_ref", r#"{"ref": "a@999999999999999999999999999999"}"#, 422),
        ("parse_artifact_ref", r#"{"ref": "@1"}"#, 422),
        ("build_block_spec", r#"{"index": 0, "block": {"language": "Go", "code": ""}}"#, 422),
    ] {
        let reply = ask(&service, "POST", &format!("/v1/helpers/{name}"), "", body.as_bytes());
        let error = reply.assert_error(status, "validation.invalid_request");
        let output = command_line(&["helper", name], body.as_bytes(), &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(output.stdout, b"");
        let printed: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(printed, error);
    }
}

#[test]
fn no_client_of_the_service_reaches_a_directory_of_the_host() {
    let directory = tempdir().unwrap();
    let service = engine_server(directory.path()).start();
    let body = json!({"root": "/etc"}).to_string();
    for name in ["dir_digest", "ensure_layout", "load_metadata", "save_metadata", "unknown"] {
        let reply = ask(&service, "POST", &format!("/v1/helpers/{name}"), "", body.as_bytes());
        assert_eq!(reply.status, 404, "{name}");
    }
    assert_eq!(ask(&service, "GET", "/v1/helpers/is_text_mime", "", b"").status, 405);
    let body = json!({"mime_type": "text/css"}).to_string();
    let encoded = ask(&service, "POST", "/v1/helpers/is%5Ftext_mime", "", body.as_bytes());
    assert_eq!(encoded.json(), json!({"text": true}));
}

#[test]
fn the_command_line_lays_out_digests_and_describes_a_directory() {
    let parent = tempdir().unwrap();
    let root = parent.path().join("ws");
    let helper = |name: &str, body: Value| {
        let output = command_line(&["helper", name], body.to_string().as_bytes(), &[]);
        let out = if output.status.success() { &output.stdout } else { &output.stderr };
        let text = String::from_utf8_lossy(out).into_owned();
        (output.status.code().unwrap(), serde_json::from_str::<Value>(&text).unwrap_or_default())
    };
    let (code, paths) = helper("ensure_layout", json!({"root": root}));
    let expected = json!({"skills": root.join("skills"), "work": root.join("work"),
                          "runs": root.join("runs"), "out": root.join("out")});
    assert_eq!((code, paths), (0, expected));
    let (_, mut metadata) = helper("load_metadata", json!({"root": root}));
    assert_eq!((&metadata["version"], &metadata["skills"]), (&json!(1), &json!({})));
    metadata["inputs"] =
        json!([{"from": "artifact://a", "to": "work/inputs/a", "version": 0, "ts": "t"}]);
    let (code, saved) = helper("save_metadata", json!({"root": root, "metadata": metadata}));
    assert_eq!((code, &saved["inputs"]), (0, &metadata["inputs"]));
    assert_eq!(helper("load_metadata", json!({"root": root})), (0, saved));
    fs::remove_file(root.join("metadata.json")).unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/x.txt"), "one").unwrap();
    fs::write(root.join("a/c.txt"), "two").unwrap();
    let digest = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    let answer = json!({"digest": digest, "files": 2});
    assert_eq!(helper("dir_digest", json!({"root": root})), (0, answer));
    let (code, error) = helper("dir_digest", json!({"root": root.join("none")}));
    assert_eq!((code, &error["details"]["path"]), (2, &json!("root")));
    fs::write(root.join("metadata.json"), "{").unwrap();
    let (code, error) = helper("load_metadata", json!({"root": root}));
    assert_eq!((code, &error["details"]["path"]), (2, &json!("metadata.json")));
    assert_eq!(command_line(&["helper", "unknown"], b"{}", &[]).status.code(), Some(2));
}
